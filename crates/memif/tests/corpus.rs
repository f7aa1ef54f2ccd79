//! Replays the committed corpus of this crate's fuzz targets, keeps its seeds up to date, and runs
//! random scripts.

use fastlane_memif::fuzz;
use fastlane_testing::{Spec, corpus};
use proptest::prelude::*;

fn rings(data: &[u8]) {
    fuzz::rings(data, &mut Spec { frames: 16, ..Spec::default() }.pool());
}

#[test]
fn the_corpus_of_messages_holds() {
    corpus::replay("memif_messages", 10, fuzz::messages);
}

#[test]
fn the_corpus_of_rings_holds() {
    corpus::replay("memif_rings", 10, rings);
}

proptest! {
    #[test]
    fn random_messages_are_read(data in proptest::collection::vec(any::<u8>(), 0..512)) {
        fuzz::messages(&data);
    }

    #[test]
    fn random_scripts_break_nothing(data in proptest::collection::vec(any::<u8>(), 0..2048)) {
        rings(&data);
    }
}

fn record(kind: u16, rest: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], rest].concat()
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let name = |first: u8| [&[first; 31][..], &[0]].concat();
    vec![
        ("none", record(0, &[])),
        ("ack", record(1, &[])),
        ("hello", record(2, &[name(b'h'), vec![0, 2, 0, 2, 15, 0, 255, 0, 255, 0, 14]].concat())),
        ("init", record(3, &[vec![0, 2, 7, 0, 0, 0, 0], vec![b's'; 24], name(b'i')].concat())),
        ("add-region", record(4, &[0, 0, 0, 0, 16, 0, 0, 0, 0, 0])),
        ("add-ring", record(5, &[1, 0, 0, 0, 0, 0, 64, 0, 0, 0, 10, 0, 0])),
        ("connect", record(6, &name(b'c'))),
        ("connected", record(7, &name(b'd'))),
        ("disconnect", record(8, &[vec![1, 0, 0, 0], vec![b'r'; 96]].concat())),
        ("unknown", record(9, &[0xff; 126])),
        ("wild-name", record(6, &[0xff; 126])),
    ]
}

/// Returns the step of a script that sets a head; see `fuzz::rings`.
fn head(ring: u8, value: u16) -> Vec<u8> {
    [&[0, ring][..], &value.to_le_bytes()].concat()
}

fn tail(ring: u8, value: u16) -> Vec<u8> {
    [&[1, ring][..], &value.to_le_bytes()].concat()
}

/// Number of a slot, and whether its frame continues in the next one.
struct Slot {
    ring: u8,
    number: u8,
    more: bool,
}

const RECEIVE: Slot = Slot { ring: 0, number: 0, more: false };
const TRANSMIT: Slot = Slot { ring: 1, number: 0, more: false };

/// Returns the step that writes a descriptor.
fn describe(slot: Slot, region: u16, length: u32, offset: u32) -> Vec<u8> {
    let which = slot.ring | u8::from(slot.more) << 1 | slot.number << 2;
    let (length, offset) = (length.to_le_bytes(), offset.to_le_bytes());
    [&[2, which][..], &region.to_le_bytes(), &length, &offset].concat()
}

fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let (last, receive) = (vec![3, 0], vec![4, 0]);
    let transmit = |eighths: u8| vec![5, eighths];
    let frame = |number, more| describe(Slot { number, more, ..RECEIVE }, 0, 60, 4096);
    let endless: Vec<_> = (0..16).flat_map(|slot| frame(slot, true)).collect();
    vec![
        ("one", [frame(0, false), head(0, 1), receive.clone()].concat()),
        ("one-for-a-client", [frame(0, false), tail(0, 1), receive.clone()].concat()),
        ("chain", [frame(0, true), frame(1, false), head(0, 2), receive.clone()].concat()),
        ("chain-without-end", [frame(0, true), head(0, 1), receive.clone(), last].concat()),
        ("endless", [endless, head(0, 16), receive.clone(), head(0, 32), receive.clone()].concat()),
        ("empty", [describe(RECEIVE, 0, 0, 4096), head(0, 1), receive.clone()].concat()),
        ("outside", [describe(RECEIVE, 0, 60, 16383), head(0, 1), receive.clone()].concat()),
        ("no-region", [describe(RECEIVE, 3, 60, 0), head(0, 1), receive.clone()].concat()),
        ("long", [describe(RECEIVE, 0, 9000, 0), head(0, 1), receive.clone()].concat()),
        ("jump", [head(0, 17), receive.clone()].concat()),
        ("send", [describe(TRANSMIT, 0, 256, 4096), head(1, 16), transmit(8)].concat()),
        ("send-chain", [describe(TRANSMIT, 0, 100, 4096), head(1, 16), transmit(30)].concat()),
        ("send-outside", [describe(TRANSMIT, 0, 256, 16300), head(1, 16), transmit(8)].concat()),
        ("send-jump", [head(1, 17), transmit(8), tail(1, 9), transmit(8)].concat()),
    ]
}

#[test]
fn the_seeds_are_committed() {
    corpus::seeds("memif_messages", messages());
    corpus::seeds("memif_rings", scripts());
}
