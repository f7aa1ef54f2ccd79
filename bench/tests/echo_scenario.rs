//! The contenders on veth do what they are measured for: every frame comes back, from each of them.

use std::time::Duration;

use fastlane_bench::device::veth_pair::in_namespace;
use fastlane_bench::scenarios::veth::echo::{Match, compare};
use fastlane_bench::slices::Effort;
use fastlane_testing::skip;

fn echoes(which: Match, length: usize) {
    let effort = Effort { pairs: 1, slice: Duration::from_millis(20) };
    // A frame that is lost is an error of the slice.
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
