//! Replays the committed corpus of the fuzz target and keeps its seeds up to date.

use fastlane_pfcp::fuzz;
use fastlane_testing::corpus;

use crate::samples;

#[test]
fn the_corpus_holds() {
    corpus::replay("pfcp", 25, fuzz::datagram);
}

#[test]
fn the_seeds_are_committed() {
    corpus::seeds("pfcp", samples::all().into_iter().chain(samples::broken()));
}
