//! Known answers, made by scapy: see `golden/make.py`.

use crate::support::*;

/// The frames of a capture (libpcap's format of microseconds, little-endian).
fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(capture[..4], 0xa1b2_c3d4_u32.to_le_bytes());
    let mut rest = &capture[24..];
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(header[8..12].try_into().expect("four octets")) as usize;
        let (frame, behind) = behind.split_at(length);
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

#[test]
fn what_leaves_is_what_scapy_makes_of_it() {
    let arrives = frames(include_bytes!("golden/arrives.pcap"));
    let leaves = frames(include_bytes!("golden/leaves.pcap"));
    assert_eq!((arrives.len(), leaves.len()), (16, 16));
    let mut world = World::with_user();
    for (number, (frame, expected)) in arrives.iter().zip(&leaves).enumerate() {
        let from = if frame[..6] == STATION[0] { N3 } else { N6 };
        world.show(from, std::slice::from_ref(frame));
        let left = world.left(1 - from);
        assert_eq!(left, std::slice::from_ref(expected), "frame {number}: {:?}", world.causes());
    }
    world.check();
}
