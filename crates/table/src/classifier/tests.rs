#![allow(unsafe_code, reason = "guards and readers: everything here is in one thread")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;

use super::block::{Block, Intervals, RULES, interval};
use super::instructions::{Instructions, Portable};
use super::intervals::{Edges, LEVELS, MAX_INTERVALS, Node4, Node6, Search, SearchNode};
use super::*;
use crate::{Guard, Readers, SharedMemory, SharedWords, Spec, TableError};

/// Calls a generic function with all instructions that the processor has.
macro_rules! with_all {
    ($call:ident, $($argument:expr),*) => {{
        $call::<Portable>($($argument),*);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use super::instructions::{Avx2, Avx512, Sse2};
            $call::<Sse2>($($argument),*);
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
                $call::<Avx2>($($argument),*);
            }
            let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
            if has && is_x86_feature_detected!("avx512bw") {
                $call::<Avx512>($($argument),*);
            }
        }
    }};
}

fn check_search<N: SearchNode, I: Instructions>(edges: &Edges, values: &[u128]) {
    let (nodes, levels) = edges.nodes::<N>();
    let mut starts = [0; LEVELS];
    starts[..levels.len()].copy_from_slice(&levels);
    let search = Search { nodes: &nodes[..], starts, levels: levels.len() };
    for values in values.chunks(BURST) {
        search.find::<I>(
            values.len(),
            |at| N::key(values[at]),
            |at, interval| assert_eq!(interval, edges.interval(values[at]), "{}", values[at]),
        );
    }
}

fn check_searches<I: Instructions>(four: &Edges, six: &Edges, values: &[u128]) {
    let short: Vec<u128> = values.iter().map(|value| value & u128::from(u32::MAX)).collect();
    check_search::<Node4, I>(four, &short);
    check_search::<Node6, I>(six, values);
}

#[test]
fn the_interval_of_each_value_is_found_whatever_the_number_of_edges() {
    let sizes = (0..20).chain([79, 80, 81, 288, 289, 290, 700, 5000]);
    for count in sizes {
        let starts: Vec<u128> = (0..count).map(|edge| edge * 0x01F0_4003).collect();
        let last = |edge: u128| [edge, edge + 7];
        let max = u128::from(u32::MAX);
        let four = Edges::new(starts.iter().map(|edge| last(*edge)), max);
        let wide: Vec<u128> = starts.iter().map(|edge| edge << 64 | 1 << 63 | edge).collect();
        let six = Edges::new(wide.iter().map(|edge| last(*edge)), u128::MAX);
        let near = |edge: &u128| [edge.wrapping_sub(1), *edge, edge + 7, edge + 8];
        let values: Vec<u128> =
            starts.iter().chain(&wide).flat_map(near).chain([0, max, u128::MAX]).collect();
        with_all!(check_searches, &four, &six, &values);
    }
    let all = Edges::new([[0, u128::MAX]].into_iter(), u128::MAX);
    assert_eq!(all.intervals(), 1);
}

fn check_block<I: Instructions>(block: &Block, intervals: &Intervals, expected: usize) {
    assert_eq!(I::first_match(block, intervals).min(RULES), expected);
}

proptest! {
    #[test]
    fn all_instructions_find_the_first_rule_of_a_block(
        rules in proptest::collection::vec(any::<[[u16; 2]; FIELDS]>(), 0..=RULES),
        intervals in any::<[u16; FIELDS]>(),
        near in 0_u16..3,
    ) {
        // Rules close to the packet, so that some match.
        let mut block = Block::EMPTY;
        let mut packet = Intervals::default();
        packet[..FIELDS].copy_from_slice(&intervals.map(interval));
        let mut expected = RULES;
        for (index, rule) in rules.iter().enumerate() {
            let ranges = std::array::from_fn(|field| {
                let distance = |number: u16| number % (2 + near) / (1 + near);
                let [before, after] = rule[field].map(distance);
                let wide = |away: u16| if rule[field][0] % 17 == 0 { away } else { 0 };
                let first = intervals[field].saturating_sub(wide(before + 1));
                let first = first.saturating_add(after * u16::from(rule[field][1] % 3 == 0));
                let last = intervals[field].saturating_add(wide(after));
                [first, last.saturating_sub(u16::from(rule[field][1] % 7 == 1))]
            });
            block.set(index, index as u32, &ranges);
            let inside = |(interval, [first, last]): (&u16, &[u16; 2])| {
                first <= interval && interval <= last
            };
            if expected == RULES && intervals.iter().zip(&ranges).all(inside) {
                expected = index;
            }
        }
        with_all!(check_block, &block, &packet, expected);
    }
}

fn writer(memory: &Arc<SharedMemory>) -> ClassifierWriter<u64> {
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    ClassifierWriter::attach(memory, &readers).unwrap()
}

fn host(number: u32) -> FlowMatch<Ipv4Addr> {
    let source = Prefix::new(Ipv4Addr::from_bits(number), 32).unwrap();
    FlowMatch { source, ..FlowMatch::any() }
}

fn key(number: u32) -> FlowKey<Ipv4Addr> {
    let (source, destination) = (Ipv4Addr::from_bits(number), Ipv4Addr::UNSPECIFIED);
    FlowKey { source, destination, source_port: 1, destination_port: 2, protocol: 6, tag: 0 }
}

fn lookup(memory: &Arc<SharedMemory>, number: u32) -> Option<u64> {
    let reader = ClassifierReader::<u64>::attach(memory).unwrap();
    // SAFETY: nobody writes while the guard is borrowed.
    let guard = unsafe { Guard::new() };
    reader.lookup(&guard, &key(number)).copied()
}

#[test]
fn lists_that_are_too_long_or_too_costly_are_refused_by_name_and_change_nothing() {
    let memory = Spec::classifier::<u64>("short", 1500).create().unwrap();
    let mut writer = writer(&memory);
    let first = [(host(7), 70)];
    let list = RuleList { ipv4: &first, ipv6: &[], source: b"first" };
    writer.replace(&list).unwrap();
    let refusal = |writer: &mut ClassifierWriter<u64>, ipv4: &[(FlowMatch<Ipv4Addr>, u64)]| {
        let error = writer.replace(&RuleList { ipv4, ipv6: &[], source: b"second" }).unwrap_err();
        assert!(matches!(error, TableError::Full { .. }), "{error}");
        error.to_string()
    };
    let many: Vec<_> = (0..1501).map(|number| (host(number), 1)).collect();
    let error = refusal(&mut writer, &many);
    assert!(error.contains("'short' is full: 1501 rules are more than its 1500"), "{error}");
    // Every rule overlaps every other in both ports: no cut separates them.
    let overlapping: Vec<_> = (0..1500_u16)
        .map(|number| {
            let ports = [number, 60_000 + number];
            let rule = FlowMatch { source_ports: ports, destination_ports: ports, ..host(9) };
            (rule, 1)
        })
        .collect();
    let error = refusal(&mut writer, &overlapping);
    assert!(error.contains("compared with all of them, the limit is 1024"), "{error}");
    assert_eq!(lookup(&memory, 7), Some(70));
    assert_eq!(writer.source(), b"first");
    drop(writer);

    let memory = Spec::classifier::<u64>("small", 100_000).with_groups(40).create().unwrap();
    let mut writer = self::writer(&memory);
    let many: Vec<_> = (0..1000).map(|number| (host(number * 3), 1)).collect();
    let error = refusal(&mut writer, &many);
    assert!(error.contains("it has 40960"), "{error}");
    let far: Vec<_> = (0..40_000).map(|number| (host(number * 3), 1)).collect();
    let memory = Spec::classifier::<u64>("fields", 40_000).create().unwrap();
    let error = refusal(&mut self::writer(&memory), &far);
    assert!(error.contains(&format!("the limit is {MAX_INTERVALS}")), "{error}");
}

#[test]
fn a_killed_writers_unfinished_generation_is_not_seen_and_its_list_is_read_back() {
    let memory = Spec::classifier::<u64>("killed", 10).create().unwrap();
    let mut first = writer(&memory);
    first.replace(&RuleList { ipv4: &[(host(1), 10)], ipv6: &[], source: b"one" }).unwrap();
    first.replace(&RuleList { ipv4: &[(host(2), 20)], ipv6: &[], source: b"two" }).unwrap();
    drop(first);
    // The other area, half written.
    let spec = Spec::of(&memory).unwrap();
    let area = (spec.groups * 1024).next_multiple_of(4096);
    let current = SharedWords::new(&memory, 512, 1).unwrap().load(0);
    let other = 2 * 4096 + area * (2 - current as usize);
    let words = SharedWords::new(&memory, other / 8, area / 8).unwrap();
    (0..area / 8).for_each(|word| words.store(word, 0x0101_0101_0101_0101));
    assert_eq!([1, 2].map(|number| lookup(&memory, number)), [None, Some(20)]);
    let mut next = writer(&memory);
    assert_eq!(next.source(), b"two");
    next.replace(&RuleList { ipv4: &[(host(3), 30)], ipv6: &[], source: b"three" }).unwrap();
    assert_eq!([2, 3].map(|number| lookup(&memory, number)), [None, Some(30)]);
    assert_eq!(crate::entries(&memory).unwrap(), 1);
}

#[test]
fn families_are_apart() {
    let memory = Spec::classifier::<u64>("both", 10).create().unwrap();
    let mut writer = writer(&memory);
    let six = [(FlowMatch::<Ipv6Addr>::any(), 6)];
    writer.replace(&RuleList { ipv4: &[], ipv6: &six, source: &[] }).unwrap();
    let reader = ClassifierReader::<u64>::attach(&memory).unwrap();
    // SAFETY: nobody writes while the guard is borrowed.
    let guard = unsafe { Guard::new() };
    let FlowKey { source_port, destination_port, protocol, tag, .. } = key(0);
    let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    let key6 = FlowKey { source, destination, source_port, destination_port, protocol, tag };
    assert_eq!(reader.lookup(&guard, &key6), Some(&6));
    assert_eq!(reader.lookup(&guard, &key(0)), None);
}

#[test]
fn rules_in_several_trees_are_found_by_their_order() {
    // Hosts as sources and hosts as destinations: in one tree each would copy the others. The order
    // of both is mixed, so that each tree has rules that come before those of the other.
    const HOSTS: u32 = 1000;
    let any = Prefix::new(Ipv4Addr::UNSPECIFIED, 0).unwrap();
    let host = |number: u32| Prefix::new(Ipv4Addr::from_bits(number), 32).unwrap();
    let rules: Vec<_> = (0..2 * HOSTS)
        .map(|number| {
            let place = number * 7919 % (2 * HOSTS);
            let (source, destination) = match place % 2 {
                0 => (host(place), any),
                _ => (any, host(place)),
            };
            (FlowMatch { source, destination, ..FlowMatch::any() }, u64::from(number))
        })
        .collect();
    let memory = Spec::classifier::<u64>("trees", rules.len()).create().unwrap();
    let mut writer = writer(&memory);
    let list = RuleList { ipv4: &rules, ipv6: &[], source: &[] };
    let [statistics, _] = writer.replace(&list).unwrap();
    assert!(statistics.trees > 1, "{statistics:?}");
    let reader = ClassifierReader::<u64>::attach(&memory).unwrap();
    // SAFETY: nobody writes while the guard is borrowed.
    let guard = unsafe { Guard::new() };
    let keys: Vec<_> = (0..2 * HOSTS)
        .map(|number| FlowKey {
            destination: Ipv4Addr::from_bits(number * 31 % (2 * HOSTS + 3)),
            ..key(number)
        })
        .collect();
    let mut found = vec![None; keys.len()];
    reader.lookup_many(&guard, &keys, &mut found);
    for (key, found) in keys.iter().zip(found) {
        let first = rules.iter().find(|(rule, _)| rule.matches(key));
        assert_eq!(found, first.map(|(_, value)| value), "{key:?}");
    }
}
