use std::{cell::Cell, net::Ipv4Addr};

use proptest::test_runner::{Config, TestRunner};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::{PortRange, Prefix, Rule, Rules};

use super::*;

const ADDRESSES: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 128, 0, 1], [192, 168, 7, 9]];
const PORTS: [u16; 6] = [0, 53, 2151, 2152, 2153, 65_535];

/// Generates frames around the plain form: nearly all are IPv4, some are cut or have options, a
/// VLAN tag or a fragment's fields.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let mostly =
        |usual: u8, others: &'static [u8]| prop_oneof![12 => Just(usual), 1 => select(others)];
    (
        (mostly(0x08, &[0x81, 0x86]), mostly(0, &[0x06, 0xdd]), mostly(0x45, &[0x44, 0x46, 0x65])),
        (mostly(0, &[0x20, 0x40, 0x80, 0x3f, 1]), mostly(0, &[1, 0xff])),
        select(vec![6_u8, 17, 17, 1]),
        [select(&ADDRESSES), select(&ADDRESSES)],
        select(&PORTS),
        mostly(0x30, &[0x3f, 0x20, 0x50]),
        prop_oneof![3 => Just(64_usize), 2 => 12..64_usize],
    )
        .prop_map(|(first, fragment, protocol, addresses, port, gtp, length)| {
            let mut frame = vec![0xa5; 64];
            frame[12..15].copy_from_slice(&[first.0, first.1, first.2]);
            frame[20..22].copy_from_slice(&[fragment.0, fragment.1]);
            frame[23] = protocol;
            frame[26..34].copy_from_slice(&addresses.concat());
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            frame[42] = gtp;
            frame.truncate(length);
            frame
        })
}

/// Generates rules of any fields, including those that plain IPv4 frames cannot match.
fn rule() -> impl Strategy<Value = Rule> {
    let prefix = || {
        let v4 = (select(&ADDRESSES), 0..=32_u8).prop_map(|(address, length)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let address = Ipv4Addr::from_bits(u32::from_be_bytes(address) & mask);
            Prefix { address: address.into(), length }
        });
        let v6 = Just(Prefix { address: std::net::Ipv6Addr::UNSPECIFIED.into(), length: 0 });
        option::weighted(0.3, prop_oneof![5 => v4, 1 => v6])
    };
    let ports = || {
        (select(&PORTS), select(&PORTS), any::<bool>()).prop_map(|(one, other, is_range)| {
            let other = if is_range { other } else { one };
            PortRange { first: one.min(other), last: one.max(other) }
        })
    };
    (
        option::weighted(0.2, select(vec![IPV4, IPV4, 0x86dd, 0x0806])),
        option::weighted(0.2, select(vec![6, 17, 1])),
        [prefix(), prefix()],
        (option::weighted(0.3, ports()), option::weighted(0.2, ports())),
        (prop::bool::weighted(0.2), any::<bool>()),
        option::weighted(0.2, Just(100)),
    )
        .prop_map(|(ethertype, protocol, [source, destination], ports, flags, vlan)| {
            let (udp_port, tcp_port) = ports;
            let (gtp_u, fragments) = flags;
            Rule {
                vlan,
                ethertype,
                protocol,
                source,
                destination,
                udp_port,
                tcp_port,
                gtp_u,
                fragments,
            }
        })
        .prop_filter("contradicts itself", |rule| rule.check().is_ok())
}

#[test]
fn plain_frames_have_the_result_of_the_reference_matcher() {
    const CASES: u32 = 4_000;
    let counts = [const { Cell::new(0_u32) }; 3];
    let add = |count: usize| counts[count].set(counts[count].get() + 1);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&(vec(rule(), 1..4), vec(frame(), 16)), |(rules, frames)| {
            let rules = Rules::new(rules).expect("each rule was checked");
            for frame in &frames {
                let wanted = rules.matches_any(frame);
                prop_assert_eq!(rules.matches(frame), wanted, "{:?} {:02x?}", rules, frame);
                match (PlainIpv4::read(frame).is_some(), wanted) {
                    (false, _) => add(0),
                    (true, false) => add(1),
                    (true, true) => add(2),
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // Each kind is common: not plain, plain and passed, plain and claimed.
    let counts = counts.map(Cell::into_inner);
    assert!(counts.iter().all(|count| *count >= CASES * 16 / 10), "{counts:?}");
}

#[test]
fn only_ipv4_without_tags_options_and_fragments_is_plain() {
    let mut frame = [0; 60];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    let is_plain = |change: &[(usize, u8)], length: usize| {
        let mut frame = frame;
        change.iter().for_each(|(offset, octet)| frame[*offset] = *octet);
        PlainIpv4::read(&frame[..length]).is_some()
    };
    assert!(is_plain(&[], 60) && is_plain(&[], 44));
    assert!(is_plain(&[(20, 0xc0)], 60), "don't-fragment and the reserved bit");
    assert!(!is_plain(&[], 43));
    for change in [(12, 0x81), (13, 0x06), (14, 0x46), (14, 0x65), (20, 0x20), (20, 1), (21, 1)] {
        assert!(!is_plain(&[change], 60), "{change:x?}");
    }
}
