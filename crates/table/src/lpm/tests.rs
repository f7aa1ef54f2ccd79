//! Tests of the lookups of many addresses: all instruction sets of this processor find the same.

#![allow(unsafe_code, reason = "guards, and the lanes of the tests")]

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use proptest::prelude::*;

use super::word::{PairLink, Word};
use super::*;
use crate::counters::{Counters, LaneCounter};
use crate::layout::Layout;
use crate::memory::HUGE_PAGE;
use crate::prefix_value::PrefixValue;
use crate::simd::InstructionSet;
use crate::{Guard, Readers, SharedMemory, SharedWords, Spec, TableError};

fn create<A: Address>(capacity: usize) -> Arc<SharedMemory> {
    let spec = if A::KIND == Kind::Lpm4 { Spec::lpm4 } else { Spec::lpm6 };
    spec("lookups", capacity).create().unwrap()
}

fn write<A: Address>(routes: &[(Prefix<A>, u32)]) -> (Arc<SharedMemory>, LpmWriter<A>) {
    let memory = create::<A>(routes.len().max(1));
    // SAFETY: no lane reads while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = LpmWriter::<A>::attach(&memory, &readers).unwrap();
    routes.iter().for_each(|(prefix, value)| writer.insert(*prefix, *value).unwrap());
    (memory, writer)
}

/// Returns a reader for each instruction set of this processor.
fn readers<A: Address>(memory: &Arc<SharedMemory>) -> Vec<LpmReader<A>> {
    let with = |instructions| {
        let mut reader = LpmReader::<A>::attach(memory).unwrap();
        reader.instructions = instructions;
        reader
    };
    InstructionSet::supported().map(with).collect()
}

/// Generates prefixes that nest, and addresses in and beside them.
fn bits<A: Address>() -> impl Strategy<Value = A> {
    let octet = prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()];
    proptest::array::uniform16(octet).prop_map(|mut octets| {
        octets[0] &= 1;
        A::from_bits(u128::from_be_bytes(octets))
    })
}

fn routes<A: Address>() -> impl Strategy<Value = Vec<(Prefix<A>, u32)>> {
    let lengths = A::ROOT / 2..=A::BITS;
    let prefix =
        (bits::<A>(), lengths).prop_map(|(address, length)| Prefix::new(address, length).unwrap());
    proptest::collection::vec((prefix, 0..1_u32 << 22), 0..60)
}

fn naive<A: Address>(writer: &LpmWriter<A>, address: A) -> Option<u32> {
    let covering = writer.iter().filter(|(prefix, _)| prefix.contains(address));
    covering.max_by_key(|(prefix, _)| prefix.length()).map(|(_, value)| value)
}

fn check<A: Address>(
    routes: &[(Prefix<A>, u32)],
    addresses: &[A],
    damage: &[(f64, u32)],
) -> Result<(), TestCaseError> {
    let (memory, writer) = write(routes);
    let in_routes = routes.iter().map(|(prefix, _)| prefix.address());
    let addresses: Vec<A> = in_routes.chain(addresses.iter().copied()).collect();
    let expected: Vec<_> = addresses.iter().map(|address| naive(&writer, *address)).collect();
    drop(writer);
    // SAFETY: nobody writes.
    let guard = unsafe { Guard::new() };
    let readers = readers::<A>(&memory);
    for count in (0..addresses.len()).chain([addresses.len()]) {
        for reader in &readers {
            let mut values = vec![PrefixValue::new(4711); addresses.len()];
            reader.lookup_many(&guard, &addresses[..count], &mut values);
            let found: Vec<_> = values.iter().map(|value| value.map(PrefixValue::get)).collect();
            prop_assert_eq!(&found[..count], &expected[..count], "{:?}", reader.instructions);
            prop_assert!(found[count..].iter().all(|value| *value == Some(4711)));
        }
    }
    // Damaged words: the same from all, and nothing outside of the memory is read.
    let reader = &readers[0];
    for (at, word) in damage {
        let words = [&reader.root, &reader.groups, &reader.pairs][*word as usize % 3];
        if let Some(damaged) = words.get((at * words.len() as f64) as usize) {
            damaged.store(*word, Ordering::Relaxed);
        }
        let some = addresses[*word as usize % addresses.len()];
        reader.root[some.root()].store(*word, Ordering::Relaxed);
    }
    let single: Vec<_> = addresses.iter().map(|address| reader.lookup(&guard, *address)).collect();
    for reader in &readers {
        let mut values = vec![None; addresses.len()];
        reader.lookup_many(&guard, &addresses, &mut values);
        let found: Vec<_> = values.iter().map(|value| value.map(PrefixValue::get)).collect();
        prop_assert_eq!(&found, &single, "{:?}", reader.instructions);
    }
    Ok(())
}

fn damage() -> impl Strategy<Value = Vec<(f64, u32)>> {
    let word = prop_oneof![
        any::<u32>(),
        (0..1_u32 << 22, 0..4_u32).prop_map(|(number, kind)| number | kind << 30),
        (0..100_u32).prop_map(|number| number | 1 << 30),
        (0..100_u32, 0..256_u32).prop_map(|(number, octet)| number | octet << 22 | 3 << 30),
    ];
    proptest::collection::vec((0.0..1.0, word), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn all_instruction_sets_find_the_longest_prefix_for_ipv4(
        routes in routes::<Ipv4Addr>(),
        addresses in proptest::collection::vec(bits(), 1..70),
        damage in damage(),
    ) {
        check(&routes, &addresses, &damage)?;
    }

    #[test]
    fn all_instruction_sets_find_the_longest_prefix_for_ipv6(
        routes in routes::<Ipv6Addr>(),
        addresses in proptest::collection::vec(bits(), 1..70),
        damage in damage(),
    ) {
        check(&routes, &addresses, &damage)?;
    }
}

/// The group, or pair, whose number is the first one that does not exist lies right behind.
#[test]
fn a_group_or_pair_that_does_not_exist_has_no_route() {
    fn check<A: Address>(link: impl Fn(u32) -> Word, count: impl Fn(&Spec) -> usize) {
        let (memory, writer) = write::<A>(&[]);
        drop(writer);
        // SAFETY: nobody writes.
        let guard = unsafe { Guard::new() };
        let count = u32::try_from(count(&Spec::of(&memory).unwrap())).unwrap();
        // What follows looks like routes.
        let words = SharedWords::new(&memory, 0, memory.len() / 8).unwrap();
        let route = u64::from(Word::route(A::BITS, 7).0);
        let reader = LpmReader::<A>::attach(&memory).unwrap();
        for part in [&reader.groups, &reader.pairs] {
            let end = part.as_ptr_range().end.addr() - memory.start().addr().get();
            (end / 8..words.len().min(end / 8 + 512))
                .for_each(|index| words.store(index, route | route << 32));
        }
        let address = A::from_bits(u128::MAX);
        for number in [count, count + 1, (1 << 22) - 1] {
            reader.root[address.root()].store(link(number).0, Ordering::Relaxed);
            for reader in readers::<A>(&memory) {
                let mut values = [PrefixValue::new(1); 32];
                reader.lookup_many(&guard, &[address; 32], &mut values);
                assert_eq!(values, [None; 32], "{number}: {:?}", reader.instructions);
                assert_eq!(reader.lookup(&guard, address), None, "{number}");
            }
        }
    }
    check::<Ipv4Addr>(Word::group, |spec| spec.groups);
    check::<Ipv6Addr>(Word::group, |spec| spec.groups);
    let pair = |number| Word::pair(PairLink { number, octet: 0xFF });
    check::<Ipv4Addr>(pair, |_| 0);
    check::<Ipv6Addr>(pair, Spec::pairs);
}

fn prefix6(address: &str, length: u8) -> Prefix<Ipv6Addr> {
    Prefix::new(address.parse().unwrap(), length).unwrap()
}

/// Returns the number of groups and pairs in use.
fn in_use<A: Address>(writer: &LpmWriter<A>) -> [usize; 2] {
    let (trie, spec) = (&writer.trie, &writer.trie.reader.header.spec);
    [spec.groups - trie.free_groups.len(), spec.pairs() - trie.free_pairs.len()]
}

#[test]
fn a_prefix_that_is_alone_takes_pairs_and_the_second_one_a_group() {
    let host = prefix6("2001:db8::1", 128);
    let memory = create::<Ipv6Addr>(3);
    // SAFETY: no lane reads while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = LpmWriter::attach(&memory, &readers).unwrap();
    writer.insert(host, 1).unwrap();
    assert_eq!(in_use(&writer), [0, 14]);
    // It covers the same octet as what the pair has inside.
    writer.insert(prefix6("2001:db8::", 32), 3).unwrap();
    assert_eq!(in_use(&writer), [0, 14]);
    assert_eq!(writer.lookup("2001:db8::2".parse().unwrap()), Some(3));
    // Another octet.
    writer.insert(prefix6("2001:da8::", 32), 4).unwrap();
    assert_eq!(in_use(&writer), [1, 13]);
    assert_eq!(writer.lookup("2001:da8::1".parse().unwrap()), Some(4));
    assert_eq!(writer.lookup("2001:db8::1".parse().unwrap()), Some(1));
    for (address, length) in [("2001:db8::1", 128), ("2001:da8::", 32), ("2001:db8::", 32)] {
        assert!(writer.remove(prefix6(address, length)));
    }
    assert_eq!(in_use(&writer), [0, 0]);
}

#[test]
fn groups_serve_where_no_pair_is_left() {
    let memory = Spec::lpm6("few pairs", 2).with_groups(20).create().unwrap();
    // SAFETY: no lane reads while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = LpmWriter::<Ipv6Addr>::attach(&memory, &readers).unwrap();
    writer.insert(prefix6("2001:db8::1", 128), 1).unwrap();
    writer.insert(prefix6("fd00::1", 128), 2).unwrap();
    assert_eq!(in_use(&writer), [12, 16]);
    assert_eq!(writer.lookup("2001:db8::1".parse().unwrap()), Some(1));
    assert_eq!(writer.lookup("fd00::1".parse().unwrap()), Some(2));
    assert_eq!(writer.lookup("fd00::".parse().unwrap()), None);
    drop(writer);
    let mut writer = LpmWriter::<Ipv6Addr>::attach(&memory, &readers).unwrap();
    assert_eq!((writer.repaired(), in_use(&writer)), (0, [12, 16]));
    writer.remove(prefix6("fd00::1", 128));
    assert_eq!(in_use(&writer), [0, 14]);
}

/// Looks up while a writer changes the routes: each result is a route that covers the address.
fn look_up_while_routes_change<A: Address>() {
    const CHANGES: u32 = 3_000;
    let lengths =
        [A::ROOT - 8, A::ROOT - 1, A::ROOT, A::ROOT + 1, A::ROOT + 7, A::ROOT + 8, A::BITS];
    let address = |number: u32| {
        let [high, low] = [(number >> 4) & 3, number & 15].map(u128::from);
        A::from_bits((0x0A01 << 112) | (high << (127 - u32::from(A::ROOT))) | ((low * 0x11) << 96))
    };
    let prefixes: Vec<Prefix<A>> = lengths
        .iter()
        .flat_map(|length| (0..64).map(|number| Prefix::new(address(number), *length).unwrap()))
        .collect();
    let memory = create::<A>(prefixes.len());
    let sets: Vec<_> = InstructionSet::supported().collect();
    let counters = Counters::create(sets.len(), 0).unwrap();
    // SAFETY: the lanes with these counters are all that read the table.
    let lanes = Arc::new(unsafe { Readers::lanes(&counters) });
    let mut writer = LpmWriter::<A>::attach(&memory, &lanes).unwrap();
    writer.insert(prefixes[0], 0).unwrap();
    let (is_over, begin) = (AtomicBool::new(false), Barrier::new(sets.len() + 1));
    std::thread::scope(|scope| {
        for (lane, reader) in readers::<A>(&memory).into_iter().enumerate() {
            let (counters, prefixes) = (counters.lane(lane), &prefixes);
            let (is_over, begin) = (&is_over, &begin);
            scope.spawn(move || {
                let addresses: [A; 64] = std::array::from_fn(|number| address(number as u32));
                begin.wait();
                let mut turn = 0;
                while !is_over.load(Ordering::Relaxed) {
                    turn += 1;
                    // SAFETY: the turn is published after the guard's last use.
                    let guard = unsafe { Guard::new() };
                    let mut values = [None; 64];
                    reader.lookup_many(&guard, &addresses, &mut values);
                    for (address, value) in addresses.into_iter().zip(values) {
                        let value = value.expect("the first route always exists");
                        let prefix = prefixes[value.get() as usize];
                        assert!(prefix.contains(address), "{address} has the route {prefix}");
                    }
                    counters.publish(LaneCounter::Turn, turn);
                }
                counters.publish(LaneCounter::Ended, 1);
            });
        }
        begin.wait();
        let mut random = 0x9E37_79B9_u32;
        for _ in 0..CHANGES {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (random >> 8) as usize % prefixes.len();
            // The shortest prefix, of which all addresses are, stays.
            if number < 64 || random >> 31 == 0 {
                // A lane may have no CPU for a second.
                if let Err(error) = writer.insert(prefixes[number], number as u32) {
                    assert!(matches!(error, TableError::Stalled { .. }), "{error}");
                }
            } else {
                writer.remove(prefixes[number]);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn ipv4_lookups_find_a_route_of_the_address_while_routes_change() {
    look_up_while_routes_change::<Ipv4Addr>();
}

#[test]
fn ipv6_lookups_find_a_route_of_the_address_while_routes_change() {
    look_up_while_routes_change::<Ipv6Addr>();
}

/// Returns true if the kernel makes huge pages of shared memory, or says that the test is skipped.
fn makes_huge_pages() -> bool {
    let makes = SharedMemory::create("probe", HUGE_PAGE).unwrap().make_huge_page(0);
    if !makes {
        eprintln!("skipped: this kernel makes no huge pages of shared memory");
    }
    makes
}

#[test]
fn the_root_lies_in_huge_pages_where_routes_are() {
    if !makes_huge_pages() {
        return;
    }
    let prefix = |address: [u8; 4], length| Prefix::new(Ipv4Addr::from(address), length).unwrap();
    let (memory, mut writer) = write(&[10, 11].map(|last| (prefix([10, 0, last, 0], 24), 1)));
    writer.remove(prefix([10, 0, 11, 0], 24));
    let spec = Spec::of(&memory).unwrap();
    if memory.resident(0) == memory.resident(memory.len() / HUGE_PAGE - 1) {
        eprintln!("skipped: all memory is in huge pages of hugetlbfs");
        return;
    }
    let first = Layout::of(&spec).unwrap().index / HUGE_PAGE;
    // A huge page has 2^19 words of the 2^24: those of eight first octets.
    let resident = |octet: usize| memory.resident(first + octet / 8).unwrap();
    assert_eq!((resident(10), resident(192)), (HUGE_PAGE, 0));
    writer.insert(prefix([0, 0, 0, 0], 0), 2).unwrap();
    assert!((0..256).step_by(8).all(|octet| resident(octet) == HUGE_PAGE));
}

#[test]
fn the_rest_of_the_root_is_added_once_most_of_it_is_in_use() {
    if !makes_huge_pages() {
        return;
    }
    let prefix = |address: [u8; 4], length| Prefix::new(Ipv4Addr::from(address), length).unwrap();
    let memory = create::<Ipv4Addr>(2);
    // SAFETY: no lane reads while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = LpmWriter::<Ipv4Addr>::attach(&memory, &readers).unwrap();
    writer.insert(prefix([0, 0, 0, 0], 1), 1).unwrap();
    let first = Layout::of(&Spec::of(&memory).unwrap()).unwrap().index / HUGE_PAGE;
    let resident = |octet: usize| memory.resident(first + octet / 8).unwrap();
    if resident(224) != 0 {
        eprintln!("skipped: all memory is in huge pages of hugetlbfs");
        return;
    }
    writer.collapse();
    assert_eq!((resident(0), resident(224)), (HUGE_PAGE, 0));
    writer.insert(prefix([128, 0, 0, 0], 2), 2).unwrap();
    writer.collapse();
    assert!((0..256).step_by(8).all(|octet| resident(octet) == HUGE_PAGE));
    assert_eq!(writer.lookup([224, 0, 0, 1].into()), None);
}

#[test]
fn a_successor_takes_no_memory_where_no_route_is() {
    let prefix = |address: [u8; 4], length| Prefix::new(Ipv4Addr::from(address), length).unwrap();
    let routes = [(prefix([10, 0, 0, 0], 8), 1), (prefix([192, 0, 2, 1], 32), 2)];
    let (memory, writer) = write(&routes);
    drop(writer);
    let blocks = || rustix::fs::fstat(memory.as_fd()).unwrap().st_blocks;
    let before = blocks();
    // SAFETY: no lane reads while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let writer = LpmWriter::<Ipv4Addr>::attach(&memory, &readers).unwrap();
    assert_eq!((blocks(), writer.repaired()), (before, 0));
    assert_eq!(writer.lookup([192, 0, 2, 1].into()), Some(2));
    assert_eq!(writer.lookup([10, 9, 8, 7].into()), Some(1));
}
