//! Known answers: `leaves.pcap` is what Linux 6.18 made of `arrives.pcap`, forwarding
//! from an interface with the addresses of the tests to a neighbour. The router makes the same.

use fastlane_testing::frames_of;

use crate::support::{Known, out_of, route};

/// UDP, TCP, fragments, GRE and ESP, the longest, the last hop but one, checksums next to both
/// zeros, what stands behind a packet; IPv6 with and without extension headers.
#[test]
fn what_leaves_is_what_linux_makes_of_it() {
    let arrives = frames_of(include_bytes!("arrives.pcap"));
    let leaves = frames_of(include_bytes!("leaves.pcap"));
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
