//! Shortest and longest frames.

use std::time::{Duration, Instant};

use fastlane_table::counters::PortCounter;

use super::bench::{Bench, Entry, not_applicable};
use super::labeller;
use crate::frame::swap;
use crate::{Rig, Spec, Tag};

/// Checks that short frames return unchanged, or padded to 60 bytes.
pub fn runts_pass<R: Rig>() {
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::reflect) else { return };
    for length in R::SHORTEST.max(14)..=70 {
        let sequence = bench.begin(1).start;
        let sent = Tag { test: bench.test, sequence }.plain(bench.rig.addresses(), length);
        let mut expected = sent.clone();
        swap(&mut expected);
        assert!(bench.rig.peer().send(&sent), "the peer cannot send {length} bytes");
        let end = Instant::now() + R::PATIENCE;
        let received = loop {
            assert!(Instant::now() < end, "a frame of {length} bytes does not come back");
            bench.turn();
            let frame = bench.rig.peer().receive(Duration::from_micros(100));
            if let Some(frame) = frame.filter(|frame| frame.starts_with(&expected[..14])) {
                break frame;
            }
        };
        let (content, padding) = received.split_at(length.min(received.len()));
        assert_eq!(content, expected, "a frame of {length} bytes");
        let padded = received.len() <= length.max(60) && padding.iter().all(|byte| *byte == 0);
        assert!(padded, "a frame of {length} bytes returned with {padding:?} behind it");
    }
    bench.close();
}

/// Checks that the longest frames pass in both directions, in bursts.
pub fn largest_frames_pass<R: Rig>() {
    let Some(mut bench) = Bench::<R>::open(Spec::default(), labeller::to_port) else { return };
    for length in [R::LONGEST - 1, R::LONGEST] {
        for from in [Entry::Peer, Entry::SecondPort] {
            bench.exchange(from, 300, length);
            bench.at_peer.assert_complete(&format!("frames of {length} bytes"));
        }
    }
    bench.close();
}

/// Checks that frames too long for the device are counted, and the others are sent.
pub fn too_long_is_counted<R: Rig>() {
    let spec = Spec::default();
    let longest = spec.pool().room();
    if R::LONGEST + 4 >= longest {
        return not_applicable("too_long_is_counted", "limit below the size of a frame");
    }
    let Some(mut bench) = Bench::<R>::open(spec, labeller::to_port) else { return };
    let range = bench.begin(40);
    for number in range.clone() {
        bench.send(Entry::SecondPort, number, if number % 2 == 0 { 64 } else { longest });
    }
    bench.until(|bench| bench.at_peer.distinct() >= 20);
    bench.settle(Duration::from_millis(50));
    let good: Vec<_> = range.filter(|number| number % 2 == 0).collect();
    assert_eq!(bench.at_peer.numbers_received(1), good, "the frames that the device can send");
    bench.close();
    let counted =
        [PortCounter::DropTransmitLength, PortCounter::DropTransmitError].map(|c| bench.count(c));
    assert_eq!(counted.iter().sum::<u64>(), 20, "too long, refused by the device: {counted:?}");
}
