//! Replays the committed corpus of every fuzz target and keeps its seeds up to date.

use fastlane_testing::corpus;
use fastlane_wire::fuzz;

use crate::seeds;

#[test]
fn the_corpus_of_layers_holds() {
    corpus::replay("layers", 20, fuzz::layers);
}

#[test]
fn the_corpus_of_checksum_holds() {
    corpus::replay("checksum", 20, fuzz::checksum);
}

#[test]
fn the_corpus_of_gtpu_holds() {
    corpus::replay("gtpu", 20, fuzz::gtpu);
}

#[test]
fn the_seeds_are_committed() {
    for (target, seeds) in seeds::all() {
        corpus::seeds(target, seeds);
    }
}
