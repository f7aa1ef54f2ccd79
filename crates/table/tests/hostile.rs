//! Damaged memory: whatever it contains, readers and writers stay inside it, end, and do not panic.
#![allow(unsafe_code, reason = "guards and readers: everything here is in one thread")]

use std::net::Ipv6Addr;
use std::sync::Arc;

use fastlane_table::{
    ArrayReader, ArrayWriter, ClassifierReader, ClassifierWriter, EntryId, FlowKey, FlowMatch,
    Guard, HashReader, HashWriter, Lpm6Reader, Lpm6Writer, Pending, Prefix, PrefixValue, Readers,
    Reset, RuleList, SharedMemory, SharedWords, Spec, State,
};
use proptest::prelude::*;

/// Generates offsets, as fractions of the memory, and values to write. Small numbers are frequent,
/// because they are valid indexes.
fn damage() -> impl Strategy<Value = Vec<(f64, u64)>> {
    let word = prop_oneof![
        any::<u64>(),
        (0..200_u64, 0..200_u64).prop_map(|(low, high)| low | high << 32),
        (0..1_u64 << 22, 0..4_u64).prop_map(|(value, bits)| value | bits << 30),
    ];
    proptest::collection::vec((0.0..1.0, word), 1..300)
}

/// Writes the damage after the header, or everywhere.
fn apply(memory: &Arc<SharedMemory>, damage: &[(f64, u64)], header: bool) {
    let first = if header { 0 } else { 4096 / 8 };
    let words = SharedWords::new(memory, first, memory.len() / 8 - first).unwrap();
    for (place, word) in damage {
        words.store((place * words.len() as f64) as usize, *word);
    }
}

fn attach_hash(memory: &Arc<SharedMemory>) -> Option<HashReader<u64, u64>> {
    let reader = HashReader::<u64, u64>::attach(memory).ok()?;
    // SAFETY: nobody writes.
    let guard = unsafe { Guard::new() };
    let keys: Vec<u64> = (0..200).collect();
    let mut found = vec![None; keys.len()];
    let hits = reader.get_many(&guard, &keys, &mut found);
    let single = keys.iter().filter(|key| reader.get(&guard, key).is_some()).count();
    assert_eq!(hits, single);
    let capacity = reader.capacity();
    assert!(found.iter().flatten().all(|found| found.entry.index() < capacity));
    Some(reader)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn a_damaged_hash_is_read_and_put_right(damage in damage(), header in any::<bool>()) {
        let memory = Spec::hash::<u64, u64>("damaged", 100).seeded([1, 2]).create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = HashWriter::<u64, u64>::attach(&memory, &readers).unwrap();
        (0..90).for_each(|key| assert!(writer.insert(&key, &key).is_ok()));
        drop(writer);
        apply(&memory, &damage, header);
        attach_hash(&memory);
        if let Ok(writer) = HashWriter::<u64, u64>::attach(&memory, &readers) {
            let before = writer.len();
            prop_assert_eq!(writer.iter().count(), before);
            let keys: Vec<u64> = writer.iter().map(|(key, _)| key).collect();
            for key in &keys {
                prop_assert!(writer.get(key).is_some(), "{} is not found", key);
            }
            drop(writer);
            let mut writer = HashWriter::<u64, u64>::attach(&memory, &readers).unwrap();
            prop_assert_eq!(writer.repaired(), 0);
            for key in keys {
                prop_assert!(writer.remove(&key));
            }
            for key in 0..writer.capacity().min(100) as u64 {
                writer.insert(&key, &(key * 3)).unwrap();
            }
            let is_right = |key| *writer.get(&key).unwrap().value == key * 3;
            prop_assert!((0..writer.len() as u64).all(is_right));
        }
    }

    #[test]
    fn a_damaged_array_is_read_and_put_right(damage in damage(), header in any::<bool>()) {
        let memory = Spec::array::<u64>("damaged", 100).create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = ArrayWriter::<u64>::attach(&memory, &readers).unwrap();
        (0..90).for_each(|index| writer.set(index, &5).unwrap());
        drop(writer);
        apply(&memory, &damage, header);
        // SAFETY: nobody writes.
        let guard = unsafe { Guard::new() };
        if let Ok(reader) = ArrayReader::<u64>::attach(&memory) {
            (0..reader.capacity().min(200) + 1).for_each(|index| _ = reader.get(&guard, index));
        }
        if let Ok(mut writer) = ArrayWriter::<u64>::attach(&memory, &readers) {
            for index in 0..writer.capacity().min(100) {
                writer.set(index, &(index as u64)).unwrap();
            }
            let all = writer.iter().take(100).all(|(index, value)| *value == index as u64);
            prop_assert!(all);
        }
    }

    #[test]
    fn a_damaged_prefix_table_is_read_and_put_right(damage in damage(), header in any::<bool>()) {
        let memory = Spec::lpm6("damaged", 50).with_groups(40).create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = Lpm6Writer::attach(&memory, &readers).unwrap();
        let prefix = |number: u16| {
            let address = Ipv6Addr::new(0, number % 2, number, 0, 0, 0, 0, 0);
            Prefix::new(address, (number * 3) as u8).unwrap()
        };
        (0..15).for_each(|number| writer.insert(prefix(number), 7).unwrap());
        drop(writer);
        apply(&memory, &damage, header);
        let address = |n| Ipv6Addr::new(0, n % 2, n, n, 0, 0, 0, n);
        let addresses: Vec<_> = (0..100).map(address).collect();
        // SAFETY: nobody writes.
        let guard = unsafe { Guard::new() };
        if let Ok(reader) = Lpm6Reader::attach(&memory) {
            let mut values = vec![None; addresses.len()];
            reader.lookup_many(&guard, &addresses, &mut values);
            let single = addresses.iter().map(|address| reader.lookup(&guard, *address));
            prop_assert!(single.eq(values.iter().map(|value| value.map(PrefixValue::get))));
        }
        if let Ok(writer) = Lpm6Writer::attach(&memory, &readers) {
            let routes: Vec<_> = writer.iter().collect();
            for address in addresses {
                let covering = routes.iter().filter(|(prefix, _)| prefix.contains(address));
                let best = covering.max_by_key(|(prefix, _)| prefix.length());
                prop_assert_eq!(writer.lookup(address), best.map(|(_, value)| *value));
            }
            drop((routes, writer));
            let again = Lpm6Writer::attach(&memory, &readers).unwrap();
            prop_assert_eq!(again.repaired(), 0);
        }
    }

    #[test]
    fn a_damaged_classifier_is_read_and_replaced(damage in damage(), header in any::<bool>()) {
        let memory = Spec::classifier::<u64>("damaged", 100).with_groups(32).create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = ClassifierWriter::<u64>::attach(&memory, &readers).unwrap();
        let rule = |number: u16| {
            let source = Ipv6Addr::new(number % 2, number, 0, 0, 0, 0, 0, 0);
            let source = Prefix::new(source, 32).unwrap();
            FlowMatch { source, source_ports: [number, 9 * number], ..FlowMatch::any() }
        };
        let rules: Vec<_> = (1..90).map(|number| (rule(number), u64::from(number))).collect();
        let list = RuleList { ipv4: &[], ipv6: &rules, source: b"rules" };
        writer.replace(&list).unwrap();
        drop(writer);
        apply(&memory, &damage, header);
        let key = |number: u16| FlowKey {
            source: Ipv6Addr::new(number % 2, number, 7, 0, 0, 0, 0, 9),
            destination: Ipv6Addr::LOCALHOST,
            source_port: 2 * number,
            destination_port: 5,
            protocol: 6,
            tag: 1,
        };
        let keys: Vec<_> = (0..100).map(key).collect();
        // SAFETY: nobody writes while the guard is borrowed.
        let guard = unsafe { Guard::new() };
        if let Ok(reader) = ClassifierReader::<u64>::attach(&memory) {
            let mut found = vec![None; keys.len()];
            reader.lookup_many(&guard, &keys, &mut found);
            let single = keys.iter().map(|key| reader.lookup(&guard, key));
            prop_assert!(single.eq(found));
        }
        if let Ok(mut writer) = ClassifierWriter::<u64>::attach(&memory, &readers) {
            let _ = (writer.source(), fastlane_table::entries(&memory));
            if writer.replace(&list).is_ok() {
                let reader = ClassifierReader::<u64>::attach(&memory).unwrap();
                for key in &keys {
                    let first = rules.iter().find(|(rule, _)| rule.matches(key));
                    prop_assert_eq!(reader.lookup(&guard, key), first.map(|(_, value)| value));
                }
            }
        }
    }

    #[test]
    fn damaged_state_and_events_stay_inside(damage in damage()) {
        for spec in [Spec::state::<3>("damaged", 50, 2), Spec::pending("damaged", 50, 2)] {
            let memory = spec.create().unwrap();
            apply(&memory, &damage, true);
            if let Ok(state) = State::<3>::attach(&memory) {
                (0..200).for_each(|entry| state.lane(0).at(EntryId(entry)).add(2, 1));
                state.reset(EntryId(3));
                prop_assert_eq!(state.read(EntryId(3)), [0; 3]);
            }
            if let Ok(pending) = Pending::attach(&memory) {
                (0..200).for_each(|entry| pending.lane(0).raise(EntryId(entry)));
                pending.scan(|entry, seen| pending.done(entry, seen));
                pending.scan(|entry, _| panic!("{entry:?} is pending still"));
            }
        }
    }
}
