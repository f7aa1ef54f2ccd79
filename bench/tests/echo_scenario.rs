//! Every contender on veth echoes every frame.

use std::time::Duration;

use fastlane_bench::device::veth_pair::in_namespace;
use fastlane_bench::scenarios::veth::echo::{Match, compare};
use fastlane_bench::slices::Effort;
use fastlane_testing::skip;

fn echoes(which: Match, length: usize) {
    let effort = Effort { pairs: 1, slice: Duration::from_millis(20) };
    // A lost frame is an error of the slice.
    match in_namespace(|| compare(which, length, effort, |_| {})) {
        Ok(pairs) => assert!(pairs.ours[0] > 0.0 && pairs.rival[0] > 0.0, "{pairs:?}"),
        Err(error) if error.to_string().starts_with("no network namespace") => {
            skip("bench-echo", &error.to_string());
        }
        Err(error) => panic!("{which:?}: {error}"),
    }
}

#[test]
fn rings_by_hand_echo_every_frame() {
    echoes(Match::AgainstRings, 60);
}

#[test]
fn af_packet_echoes_every_frame() {
    echoes(Match::AgainstAfPacket, 1496);
}
