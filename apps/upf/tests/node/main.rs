//! Replay of the committed corpus of the PFCP node fuzzer.

mod node_fuzzer;

#[test]
fn the_corpus_holds() {
    let mut world = node_fuzzer::NodeFuzzer::new();
    fastlane_testing::corpus::replay("pfcp_node", 15, |input| world.show(input));
}
