//! The prefix tables behave as a list of prefixes under random operations.
#![allow(unsafe_code, reason = "readers: everything here is in one thread")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fastlane_table::{
    Address, Lpm4Writer, Lpm6Writer, LpmWriter, Prefix, Readers, SharedMemory, Spec, TableError,
};
use proptest::prelude::*;

/// Routes by prefix: address bits and length.
type Model = BTreeMap<(u128, u8), u32>;

fn naive<A: Address>(model: &Model, address: A) -> Option<u32> {
    let covering = |(bits, length): (u128, u8)| {
        Prefix::new(A::from_bits(bits), length).unwrap().contains(address)
    };
    let routes = model.iter().filter(|(prefix, _)| covering(**prefix));
    routes.max_by_key(|((_, length), _)| *length).map(|(_, value)| *value)
}

fn check<A: Address>(writer: &LpmWriter<A>, model: &Model) {
    let last = |bits: u128, length: u8| bits | u128::MAX.checked_shr(length.into()).unwrap_or(0);
    let edges = model.keys().flat_map(|(bits, length)| {
        let end = last(*bits, *length);
        [*bits, end, bits.wrapping_sub(1 << 96), end.wrapping_add(1), bits ^ 1 << 97]
    });
    for bits in edges.chain([0, u128::MAX]) {
        let address = A::from_bits(bits);
        assert_eq!(writer.lookup(address), naive(model, address), "{address} in {model:?}");
    }
    let all: Model = writer
        .iter()
        .map(|(prefix, value)| ((prefix.address().to_bits(), prefix.length()), value))
        .collect();
    assert_eq!((&all, writer.len()), (model, model.len()));
}

/// Generates nested prefixes: few bits that differ, many lengths.
fn prefixes<A: Address>() -> impl Strategy<Value = Prefix<A>> {
    let byte = || prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()];
    // Shorter prefixes write millions of words of the root; `the_shortest_prefixes` tests some.
    let shortest = A::ROOT / 2;
    (proptest::array::uniform16(byte()), shortest..=A::BITS).prop_map(|(mut bytes, length)| {
        bytes[0] &= 1;
        bytes[1] &= 1;
        Prefix::new(A::from_bits(u128::from_be_bytes(bytes)), length).unwrap()
    })
}

fn compare<A: Address>(
    memory: &Arc<SharedMemory>,
    steps: &[(Prefix<A>, bool, u32)],
    attach_every: usize,
) {
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = LpmWriter::<A>::attach(memory, &readers).unwrap();
    let mut model = Model::new();
    for (number, (prefix, insert, value)) in steps.iter().enumerate() {
        // Half of the removals are of an existing prefix.
        let some = model.keys().nth(number % model.len().max(1)).filter(|_| number % 2 == 0);
        let some = some.and_then(|(bits, length)| Prefix::new(A::from_bits(*bits), *length));
        let prefix = some.filter(|_| !insert).unwrap_or(*prefix);
        let at = (prefix.address().to_bits(), prefix.length());
        if *insert {
            writer.insert(prefix, *value).unwrap();
            model.insert(at, *value);
        } else {
            assert_eq!(writer.remove(prefix), model.remove(&at).is_some());
        }
        assert_eq!(writer.get(prefix), model.get(&at).copied());
        if number % attach_every == attach_every - 1 {
            drop(writer);
            writer = LpmWriter::attach(memory, &readers).unwrap();
            assert_eq!(writer.repaired(), 0);
        }
        if number % 8 == 0 {
            check(&writer, &model);
        }
    }
    check(&writer, &model);
    for (bits, length) in model.keys() {
        assert!(writer.remove(Prefix::new(A::from_bits(*bits), *length).unwrap()));
    }
    check(&writer, &Model::new());
    // All groups and pairs are free again: there is room for as many long prefixes.
    let spec = Spec::of(memory).unwrap();
    let pairs = if A::BITS == 128 { 8 * spec.capacity } else { 0 };
    let levels = usize::from(A::BITS - A::ROOT) / 8;
    for number in 0..(spec.groups + pairs) / levels {
        let address = A::from_bits((number as u128) << (128 - u32::from(A::ROOT)));
        writer.insert(Prefix::new(address, A::BITS).unwrap(), 1).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn ipv4_does_what_a_list_does(
        steps in proptest::collection::vec((prefixes(), any::<bool>(), 0..1_u32 << 22), 1..120),
    ) {
        let memory = Spec::lpm4("model", 200).with_groups(150).create().unwrap();
        compare::<Ipv4Addr>(&memory, &steps, 60);
    }

    #[test]
    fn ipv6_does_what_a_list_does(
        steps in proptest::collection::vec((prefixes(), any::<bool>(), 0..1_u32 << 22), 1..300),
    ) {
        let memory = Spec::lpm6("model", 300).with_groups(1500).create().unwrap();
        compare::<Ipv6Addr>(&memory, &steps, 30);
    }
}

#[test]
fn the_shortest_prefixes() {
    let prefix = |number: u8, length| Prefix::new(Ipv4Addr::new(number, 0, 0, 0), length).unwrap();
    let steps = [(0, 0, true), (128, 1, true), (192, 2, true), (192, 31, true), (128, 1, false)];
    let steps = steps.map(|(number, length, insert)| (prefix(number, length), insert, 7));
    let memory = Spec::lpm4("shortest", 10).with_groups(4).create().unwrap();
    compare::<Ipv4Addr>(&memory, &steps, 3);
}

#[test]
fn a_table_without_groups_left_says_so_and_stays_as_it_is() {
    let memory = Spec::lpm4("few", 100).with_groups(2).create().unwrap();
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = Lpm4Writer::attach(&memory, &readers).unwrap();
    let prefix = |a, b, length| Prefix::new(Ipv4Addr::new(10, a, b, 0), length).unwrap();
    writer.insert(prefix(0, 0, 8), 1).unwrap();
    writer.insert(prefix(1, 1, 25), 2).unwrap();
    writer.insert(prefix(1, 1, 26), 3).unwrap();
    writer.insert(prefix(1, 2, 32), 4).unwrap();
    let error = writer.insert(prefix(1, 3, 32), 5).unwrap_err();
    assert!(error.to_string().contains("10.1.3.0/32 needs 1 groups"), "{error}");
    assert_eq!((writer.len(), writer.get(prefix(1, 3, 32))), (4, None));
    assert_eq!(writer.lookup(Ipv4Addr::new(10, 1, 3, 0)), Some(1));
    assert!(writer.remove(prefix(1, 2, 32)));
    writer.insert(prefix(1, 3, 32), 5).unwrap();
    assert_eq!(writer.lookup(Ipv4Addr::new(10, 1, 3, 0)), Some(5));
    assert_eq!(writer.lookup(Ipv4Addr::new(10, 1, 2, 0)), Some(1));
    let error = writer.insert(prefix(0, 0, 8), 1 << 22).unwrap_err();
    assert!(matches!(error, TableError::OutOfRange { .. }), "{error}");
}

#[test]
fn the_other_addresses_are_refused() {
    let memory = Spec::lpm6("six", 10).create().unwrap();
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let error = Lpm4Writer::attach(&memory, &readers).err().unwrap().to_string();
    assert!(error.contains("'six': its kind is 4, this program expects 3"), "{error}");
    assert!(Lpm6Writer::attach(&memory, &readers).is_ok());
    assert!(Prefix::new(Ipv4Addr::UNSPECIFIED, 33).is_none());
}
