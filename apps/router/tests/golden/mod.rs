//! Known answers: `leaves.pcap` is what Linux 6.18 made of `arrives.pcap`, forwarding
//! from an interface with the addresses of the tests to a neighbour. The router makes the same.

use crate::support::{Known, out_of, route};

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

/// UDP, TCP, fragments, GRE and ESP, the longest, the last hop but one, checksums next to both
/// zeros, what stands behind a packet; IPv6 with and without extension headers.
#[test]
fn what_leaves_is_what_linux_makes_of_it() {
    let arrives = frames(include_bytes!("arrives.pcap"));
    let leaves = frames(include_bytes!("leaves.pcap"));
    assert_eq!((arrives.len(), leaves.len()), (23, 23));
    let mut known = Known::new();
    known.set("192.0.2.1", out_of(1, 1500));
    known.set("2001:db8:1::2", out_of(1, 1500));
    let became = route(known, &arrives, |router| router);
    for (number, (is, expected)) in became.sent[1].iter().zip(&leaves).enumerate() {
        assert_eq!(is, expected, "frame {number}");
    }
    assert_eq!(became.sent[1].len(), leaves.len(), "{:?}", became.causes);
}
