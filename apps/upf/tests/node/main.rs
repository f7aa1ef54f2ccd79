//! The committed corpus of the fuzzer of the PFCP node goes through as it goes there.

mod fuzz;

#[test]
fn the_corpus_holds() {
    let mut world = fuzz::World::new();
    fastlane_testing::corpus::replay("pfcp_node", 15, |input| world.show(input));
}
