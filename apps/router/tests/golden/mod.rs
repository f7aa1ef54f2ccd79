//! Golden test: `leaves.pcap` is what Linux 6.18 made of `arrives.pcap`, forwarding between
//! interfaces with the addresses of the tests. The router must produce the same.

use fastlane_testing::frames_of;

use crate::support::{TestRoutes, out_of, route};

/// Covers UDP, TCP, fragments, GRE and ESP, maximum length, time to live 2, checksums next to both
/// zeros, trailing bytes; IPv6 with and without extension headers.
#[test]
fn what_leaves_is_what_linux_makes_of_it() {
    let arrives = frames_of(include_bytes!("arrives.pcap"));
    let leaves = frames_of(include_bytes!("leaves.pcap"));
    assert_eq!((arrives.len(), leaves.len()), (23, 23));
    let mut known = TestRoutes::new();
    known.set("192.0.2.1", out_of(1, 1500));
    known.set("2001:db8:1::2", out_of(1, 1500));
    let results = route(known, &arrives, |router| router);
    for (number, (is, expected)) in results.sent[1].iter().zip(&leaves).enumerate() {
        assert_eq!(is, expected, "frame {number}");
    }
    assert_eq!(results.sent[1].len(), leaves.len(), "{:?}", results.causes);
}
