//! The PFCP node with real tables: replay of the committed corpus of its fuzzer, and recorded
//! messages of SMFs with their mutants.

mod mutants;
mod node_fuzzer;
mod recorded;
mod recorded_mutants;

use node_fuzzer::BEGINS;
use recorded::Life;

#[test]
fn the_corpus_holds() {
    let mut world = node_fuzzer::NodeFuzzer::new();
    fastlane_testing::corpus::replay("pfcp_node", 27, |input| world.show(input));
}

/// The fuzzer of the node starts from what SMFs send.
#[test]
fn recorded_lives_are_in_the_corpus() {
    let seeds =
        recorded::lives().into_iter().map(|life| (format!("smf-{}", life.name), input(&life)));
    fastlane_testing::corpus::seeds("pfcp_node", seeds);
}

/// Returns a life as an input of the fuzzer.
fn input(life: &Life) -> Vec<u8> {
    let mut input = Vec::new();
    for request in &life.requests {
        let mut datagram = request.filled(1, &|_| 1);
        datagram.resize(datagram.len().next_multiple_of(2), 0);
        let mut pieces = datagram.chunks(2 * usize::from(u8::MAX)).peekable();
        while let Some(piece) = pieces.next() {
            let action = if pieces.peek().is_some() { BEGINS } else { 0 };
            input.extend([action, (piece.len() / 2) as u8]);
            input.extend(piece);
        }
    }
    input
}
