//! A classifier finds what a linear search by priority finds.
#![allow(unsafe_code, reason = "guards and readers: everything here is in one thread")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fastlane_table::{
    ClassifierReader, ClassifierWriter, FlowAddress, FlowKey, FlowMatch, Guard, Prefix, Readers,
    RuleList, SharedMemory, Spec,
};
use proptest::prelude::*;

type Rules<A> = Vec<(FlowMatch<A>, u64)>;

/// Generates addresses whose octets are often 0, 1 or 255.
fn address<A: FlowAddress>() -> impl Strategy<Value = A> {
    any::<[u128; 2]>().prop_map(|[bits, kinds]| {
        let mut bytes = bits.to_be_bytes();
        for (byte, kind) in bytes.iter_mut().zip(kinds.to_be_bytes()) {
            match kind % 5 {
                0 => *byte = 0,
                1 => *byte = 1,
                2 => *byte = 255,
                _ => {}
            }
        }
        bytes[0] &= 0x81;
        bytes[1] &= 0x81;
        A::from_bits(u128::from_be_bytes(bytes))
    })
}

fn prefix<A: FlowAddress>() -> impl Strategy<Value = Prefix<A>> {
    let length = prop_oneof![3 => Just(0), 2 => Just(A::BITS), 6 => 0..=A::BITS];
    (address::<A>(), length).prop_map(|(address, length)| Prefix::new(address, length).unwrap())
}

fn ports() -> impl Strategy<Value = [u16; 2]> {
    let port =
        || prop_oneof![Just(0_u16), Just(80), Just(1023), Just(1024), Just(u16::MAX), any::<u16>()];
    let range = (port(), port()).prop_map(|(one, other)| [one.min(other), one.max(other)]);
    prop_oneof![
        4 => Just([0, u16::MAX]),
        4 => port().prop_map(|port| [port, port]),
        4 => range,
        1 => Just([9, 8]), // contains nothing
    ]
}

fn octets() -> impl Strategy<Value = [u8; 2]> {
    let one = prop_oneof![Just(6_u8), Just(17), Just(0), Just(255), any::<u8>()];
    prop_oneof![
        3 => Just([0, 255]),
        3 => one.prop_map(|octet| [octet, octet]),
        1 => any::<[u8; 2]>(),
    ]
}

fn rule<A: FlowAddress>() -> impl Strategy<Value = FlowMatch<A>> {
    let ports = (ports(), ports());
    (prefix(), prefix(), ports, octets(), octets()).prop_map(
        |(source, destination, (source_ports, destination_ports), protocols, tags)| FlowMatch {
            source,
            destination,
            source_ports,
            destination_ports,
            protocols,
            tags,
        },
    )
}

fn rules<A: FlowAddress>() -> impl Strategy<Value = Rules<A>> {
    let few = proptest::collection::vec(rule(), 0..40);
    let many = proptest::collection::vec(rule(), 100..300);
    prop_oneof![2 => few, 3 => many].prop_map(|rules| rules.into_iter().zip(1..).collect())
}

fn key<A: FlowAddress>() -> impl Strategy<Value = FlowKey<A>> {
    let ports = (ports(), ports());
    (address(), address(), ports, octets(), octets()).prop_map(
        |(source, destination, (from, to), protocols, tags)| FlowKey {
            source,
            destination,
            source_port: from[0],
            destination_port: to[0],
            protocol: protocols[0],
            tag: tags[0],
        },
    )
}

/// Returns packets at the edges of a rule, inside and just outside.
fn edges<A: FlowAddress>(rule: &FlowMatch<A>) -> Vec<FlowKey<A>> {
    let ends = |prefix: Prefix<A>| {
        let first = prefix.address().to_bits();
        let host = u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
        let one = 1_u128 << (128 - u32::from(A::BITS));
        [first, first | host, first.wrapping_sub(one), (first | host).wrapping_add(one)]
            .map(A::from_bits)
    };
    let near = |[first, last]: [u16; 2]| [first, last, first.wrapping_sub(1), last.wrapping_add(1)];
    let close = |[first, last]: [u8; 2]| [first, last, first.wrapping_sub(1), last.wrapping_add(1)];
    let (from, to) = (ends(rule.source), ends(rule.destination));
    let (source, destination) = (near(rule.source_ports), near(rule.destination_ports));
    let (protocols, tags) = (close(rule.protocols), close(rule.tags));
    // All first values, all last values, and each field outside by itself.
    let picks = [[0; 6], [1; 6]].into_iter().chain((0..12).map(|number| {
        let mut pick = [number % 2; 6];
        pick[number / 2] = 2 + number % 2;
        pick
    }));
    picks
        .map(|pick| FlowKey {
            source: from[pick[0]],
            destination: to[pick[1]],
            source_port: source[pick[2]],
            destination_port: destination[pick[3]],
            protocol: protocols[pick[4]],
            tag: tags[pick[5]],
        })
        .collect()
}

fn check<A: FlowAddress>(reader: &ClassifierReader<u64>, rules: &Rules<A>, random: &[FlowKey<A>]) {
    // SAFETY: nobody writes while the guard is borrowed.
    let guard = unsafe { Guard::new() };
    let of_rules = rules.iter().step_by(1 + rules.len() / 60).flat_map(|(rule, _)| edges(rule));
    let keys: Vec<_> = random.iter().copied().chain(of_rules).collect();
    let mut found = vec![None; keys.len()];
    reader.lookup_many(&guard, &keys, &mut found);
    for (key, found) in keys.iter().zip(found) {
        let first = rules.iter().find(|(rule, _)| rule.matches(key)).map(|(_, value)| value);
        assert_eq!(found, first, "{key:?}");
        assert_eq!(reader.lookup(&guard, key), first, "{key:?}");
    }
}

fn attach(memory: &Arc<SharedMemory>) -> (ClassifierWriter<u64>, ClassifierReader<u64>) {
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let writer = ClassifierWriter::attach(memory, &readers).unwrap();
    (writer, ClassifierReader::attach(memory).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn the_first_rule_is_found(
        lists in proptest::collection::vec((rules(), rules()), 1..3),
        four in proptest::collection::vec(key(), 100),
        six in proptest::collection::vec(key(), 100),
    ) {
        let memory = Spec::classifier::<u64>("model", 600).with_groups(1 << 16).create().unwrap();
        let (mut writer, reader) = attach(&memory);
        check::<Ipv4Addr>(&reader, &vec![], &four);
        for (ipv4, ipv6) in lists {
            let source = format!("{} {}", ipv4.len(), ipv6.len());
            let list = RuleList { ipv4: &ipv4, ipv6: &ipv6, source: source.as_bytes() };
            writer.replace(&list).unwrap();
            check::<Ipv4Addr>(&reader, &ipv4, &four);
            check::<Ipv6Addr>(&reader, &ipv6, &six);
            prop_assert_eq!(writer.source(), source.as_bytes());
        }
    }
}
