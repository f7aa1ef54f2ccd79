//! Golden packets, made by scapy: see `golden/make.py`.

use fastlane_testing::frames_of;

use crate::test_lane::*;

#[test]
fn what_leaves_is_what_scapy_makes_of_it() {
    let arrives = frames_of(include_bytes!("golden/arrives.pcap"));
    let leaves = frames_of(include_bytes!("golden/leaves.pcap"));
    assert_eq!((arrives.len(), leaves.len()), (16, 16));
    let mut world = TestLane::with_user();
    for (number, (frame, expected)) in arrives.iter().zip(&leaves).enumerate() {
        let from = if frame[..6] == PORT_MAC[0] { N3 } else { N6 };
        world.show(from, std::slice::from_ref(frame));
        let left = world.left(1 - from);
        assert_eq!(
            left,
            std::slice::from_ref(expected),
            "frame {number}: {:?}",
            world.drop_reasons()
        );
    }
    world.check();
}
