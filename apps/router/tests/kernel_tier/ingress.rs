//! The program for the ingress of an interface, which gets socket buffers of Linux.

use fastlane::flow_tier::Segments;

use super::*;

/// Length of an Ethernet header in bytes.
const ETHERNET: usize = 14;

/// Returns the frame as the tier forwards it. The kernel takes no test frame without an IP header.
fn at_ingress(tier: &mut KernelTier, ingress: u32, frame: &[u8]) -> Option<Vec<u8>> {
    let header = match frame[12..14] {
        [8, 0] => 20,
        [0x86, 0xdd] => 40,
        _ => 1,
    };
    if frame.len() < ETHERNET + header {
        return None;
    }
    forwarded(tier.test_run_at_ingress(ingress, frame, Segments::default()), frame)
}

#[test]
fn lane_and_ingress_agree_on_flows_and_packets() {
    if private("kernel-tier-ingress") {
        agree(at_ingress);
    }
}

/// Returns a tier with a flow whose source is translated, and the flow.
fn translated(protocol: u8) -> (KernelTier, Translation, Vec<TierFlow>) {
    configure();
    let mut tier = tier();
    let ends = ["10.0.0.1:4000", "20.0.0.1:80"];
    let it = Translation::new(protocol, ends, ["20.0.0.9:5000", "20.0.0.1:80"]);
    let mut tables = Tables::new();
    let flows = write(&mut tables, &mut tier, &it.connection());
    tier.publish(&tables.published).unwrap();
    (tier, it, flows)
}

/// For UDP Linux is asked, too, which knows no kind of a test run's buffer: `tests/flows` has some.
#[test]
fn tcp_of_several_packets_is_as_long_as_each_of_them() {
    if !private("kernel-tier-segments") {
        return;
    }
    stay_on(sched_getcpu());
    let (mut tier, it, flows) = translated(TCP);
    let payload = vec![7; 3000];
    let frame = it.original(&Shape { payload: payload.clone(), ..Shape::default() });
    let headers = (frame.len() - ETHERNET - payload.len()) as u32;
    let mut passes = |frame: &[u8], segments| {
        tier.test_run_at_ingress(index("in"), frame, segments).unwrap().is_forwarded
    };
    assert!(!passes(&frame, Segments::default()), "longer than the MTU");
    let most = EXIT_MTU - headers;
    assert!(!passes(&frame, Segments { count: 3, payload: most + 1 }));
    let segments = Segments { count: 3, payload: most };
    let trailed = [&frame[..], &[0; 20]].concat();
    assert!(!passes(&trailed, segments), "what is cut becomes one packet");
    assert!(passes(&frame, segments));
    let totals = tier.totals(flows[0].entry).unwrap();
    // Each of the others has headers of its own.
    let octets = frame.len() as u64 + 2 * (ETHERNET as u64 + u64::from(headers));
    assert_eq!((totals.packets, totals.octets), (3, octets));
}

#[test]
fn a_translated_udp_checksum_of_zero_is_sent_as_all_ones_at_the_ingress() {
    if !private("kernel-tier-ingress-zero") {
        return;
    }
    let (mut tier, it, _) = translated(UDP);
    let shape = |word: u16| Shape { payload: word.to_be_bytes().to_vec(), ..Shape::default() };
    let field = |frame: &[u8]| u16::from_be_bytes([frame[40], frame[41]]);
    let word = field(&expected(UDP, it.leaves, &shape(0)));
    let sent = at_ingress(&mut tier, index("in"), &it.original(&shape(word))).unwrap();
    assert_eq!(field(&sent), 0xffff);
    // None stays none.
    let none = Shape { has_checksum: false, ..Shape::default() };
    let sent = at_ingress(&mut tier, index("in"), &it.original(&none)).unwrap();
    assert_eq!(field(&sent), 0);
}
