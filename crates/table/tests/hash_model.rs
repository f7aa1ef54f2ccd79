//! The hash table behaves as a `HashMap` under random operations.
#![allow(unsafe_code, reason = "guards and readers: everything here is in one thread")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fastlane_table::{
    EntryId, Guard, HashReader, HashWriter, Readers, SharedMemory, Spec, State, TableError,
};
use proptest::prelude::*;

type Key = [u8; 5];
type Value = [u64; 3];

const SEED: [u64; 2] = [7, 8];

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u64),
    Remove(u8),
    Attach,
    Resize(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..60_u8, any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        8 => (0..60_u8).prop_map(Step::Remove),
        1 => Just(Step::Attach),
        1 => (40..64_usize).prop_map(Step::Resize),
    ];
    proptest::collection::vec(step, 1..400)
}

/// Returns the hash as documented in the module `hash`.
fn hash(key: Key) -> u64 {
    let fold = |x: u64, y: u64| {
        let product = u128::from(x) * u128::from(y);
        product as u64 ^ (product >> 64) as u64
    };
    let a = u64::from_le_bytes([key[0], key[1], key[2], key[3], key[4], 0, 0, 0]);
    fold(fold(SEED[0] ^ 5 ^ a, SEED[1]) ^ SEED[1], 0x9E37_79B9_7F4A_7C15)
}

/// Returns a key. Even numbers collide in the first bucket of tables with at most 64 of them.
fn key(number: u8) -> Key {
    let keys = (0..=u16::MAX).map(|n| [number, n as u8, (n >> 8) as u8, 3, 4]);
    let mut fit = keys.filter(|key| number % 2 == 1 || hash(*key).is_multiple_of(64));
    fit.next().unwrap()
}

fn value(key: u8, value: u64) -> Value {
    [value, !value, u64::from(key)]
}

/// Checks that every lookup agrees with `model`.
fn check(
    memory: &Arc<SharedMemory>,
    writer: &HashWriter<Key, Value>,
    model: &HashMap<u8, (Value, EntryId)>,
) {
    let reader = HashReader::<Key, Value>::attach(memory).unwrap();
    // SAFETY: the writer is borrowed and does not write.
    let guard = unsafe { Guard::new() };
    let keys: Vec<Key> = (0..64).map(key).collect();
    let mut found = vec![None; keys.len()];
    let hits = reader.get_many(&guard, &keys, &mut found);
    assert_eq!((hits, writer.len()), (model.len(), model.len()));
    for number in 0..64 {
        let expected = model.get(&number);
        let one = reader.get(&guard, &key(number)).map(|found| (*found.value, found.entry));
        let many = found[usize::from(number)].map(|found| (*found.value, found.entry));
        let own = writer.get(&key(number)).map(|found| (*found.value, found.entry));
        assert_eq!((one.as_ref(), many.as_ref(), own.as_ref()), (expected, expected, expected));
        let copy = reader.copy(&key(number)).map(|(entry, value)| (value, entry));
        assert_eq!(copy.as_ref(), expected);
    }
    let all: HashMap<u8, _> = writer.iter().map(|(k, f)| (k[0], (*f.value, f.entry))).collect();
    assert_eq!((&all, writer.iter().count()), (model, model.len()));
    let copies: HashMap<u8, _> = reader.copies().map(|(k, entry, v)| (k[0], (v, entry))).collect();
    assert_eq!(&copies, model);
    let entries: HashSet<_> = model.values().map(|(_, entry)| entry).collect();
    assert_eq!(entries.len(), model.len(), "two keys have one entry id");
    assert!(entries.iter().all(|entry| entry.index() < writer.capacity()));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn it_does_what_a_hash_map_does(steps in steps()) {
        let spec = Spec::hash::<Key, Value>("model", 40).seeded(SEED);
        let mut memory = spec.create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = HashWriter::<Key, Value>::attach(&memory, &readers).unwrap();
        let mut model: HashMap<u8, (Value, EntryId)> = HashMap::new();
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Insert(k, v) => match writer.insert(&key(k), &value(k, v)) {
                    Ok(entry) => {
                        let before = model.insert(k, (value(k, v), entry));
                        prop_assert!(before.is_none_or(|(_, before)| before == entry));
                    }
                    Err(error) => {
                        prop_assert!(matches!(error, TableError::Full { .. }), "{error}");
                        prop_assert!(model.len() == writer.capacity() && !model.contains_key(&k));
                    }
                },
                Step::Remove(k) => {
                    prop_assert_eq!(writer.remove(&key(k)), model.remove(&k).is_some());
                }
                Step::Attach => {
                    drop(writer);
                    writer = HashWriter::attach(&memory, &readers).unwrap();
                    prop_assert_eq!(writer.repaired(), 0);
                }
                Step::Resize(capacity) => {
                    let old = HashReader::<Key, Value>::attach(&memory).unwrap();
                    let (after, resized) = writer.resize(capacity);
                    writer = after;
                    match resized {
                        Ok(new) => {
                            prop_assert!(old.is_superseded());
                            memory = new;
                            let new = HashReader::<Key, Value>::attach(&memory).unwrap();
                            prop_assert!(!new.is_superseded());
                            prop_assert_eq!(new.generation(), old.generation() + 1);
                        }
                        Err(_) => prop_assert!(
                            model.values().any(|(_, entry)| entry.index() >= capacity)
                        ),
                    }
                }
            }
            if number % 16 == 0 {
                check(&memory, &writer, &model);
            }
        }
        check(&memory, &writer, &model);
    }
}

#[test]
fn keys_that_meet_form_a_chain_that_shrinks_again() {
    let memory = Spec::hash::<Key, Value>("chain", 200).seeded(SEED).create().unwrap();
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = HashWriter::<Key, Value>::attach(&memory, &readers).unwrap();
    let numbers: Vec<u8> = (0..120).map(|n| 2 * n).collect();
    // Some keys of each bucket of the chain remain, so that buckets in its middle become empty too.
    for round in 0..10 {
        numbers.iter().for_each(|n| assert!(writer.insert(&key(*n), &value(*n, round)).is_ok()));
        let stay = |n: &u8| u64::from(*n) / 2 % 10 == round;
        for n in numbers.iter().filter(|n| !stay(n)) {
            assert!(writer.remove(&key(*n)));
        }
        let found = |n: &u8| writer.get(&key(*n)).map(|found| *found.value);
        assert!(numbers.iter().all(|n| found(n) == stay(n).then(|| value(*n, round))));
        drop(writer);
        writer = HashWriter::attach(&memory, &readers).unwrap();
        assert_eq!(writer.repaired(), 0);
    }
    numbers.iter().for_each(|n| _ = writer.remove(&key(*n)));
    assert!(writer.is_empty());
}

#[test]
fn a_full_table_says_so_and_keeps_what_it_has() {
    for capacity in [1, 2, 7, 8, 9, 31, 32, 1000] {
        let memory = Spec::hash::<u64, u64>("full", capacity).create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = HashWriter::<u64, u64>::attach(&memory, &readers).unwrap();
        for round in 0..3 {
            for key in 0..capacity as u64 {
                writer.insert(&key, &(key + round)).unwrap();
            }
            let error = writer.insert(&u64::MAX, &0).unwrap_err().to_string();
            assert!(error.starts_with("table 'full' is full"), "{error}");
            assert!(error.contains("greater capacity"), "{error}");
            writer.insert(&0, &99).unwrap(); // an update needs no free slot of the key
            assert!(
                (1..capacity as u64).all(|key| *writer.get(&key).unwrap().value == key + round)
            );
            assert_eq!(*writer.get(&0).unwrap().value, 99);
        }
        assert!((0..capacity as u64).all(|key| writer.remove(&key)));
        assert!(writer.is_empty() && !writer.remove(&0));
    }
}

#[test]
fn keys_of_every_size_are_told_apart() {
    fn all<const N: usize>() {
        let spec = Spec::hash::<[u8; N], u16>("sizes", 300).seeded(SEED);
        let memory = spec.create().unwrap();
        // SAFETY: what was found is not borrowed while the writer writes.
        let readers = Arc::new(unsafe { Readers::none() });
        let mut writer = HashWriter::<[u8; N], u16>::attach(&memory, &readers).unwrap();
        let key = |number: usize| -> [u8; N] {
            std::array::from_fn(|at| if at == number % N { (number / N) as u8 + 1 } else { 0 })
        };
        let count = 200.min(N * 255);
        for number in 0..count {
            writer.insert(&key(number), &(number as u16)).unwrap();
        }
        assert_eq!(writer.len(), count);
        let value = |number: usize| *writer.get(&key(number)).unwrap().value;
        assert!((0..count).all(|number| usize::from(value(number)) == number));
        assert!(writer.get(&[0; N]).is_none());
    }
    all::<1>();
    all::<7>();
    all::<8>();
    all::<15>();
    all::<16>();
    all::<17>();
    all::<40>();
    all::<64>();
    assert!(Spec::hash::<[u8; 65], u16>("long", 10).create().is_err());
}

#[test]
fn large_and_aligned_values_are_where_they_should_be() {
    #[derive(
        Clone,
        Copy,
        PartialEq,
        Debug,
        zerocopy::FromBytes,
        zerocopy::IntoBytes,
        zerocopy::Immutable,
        zerocopy::KnownLayout,
    )]
    #[repr(C, align(64))]
    struct Line([u64; 8]);
    let memory = Spec::hash::<[u8; 3], Line>("lines", 20).create().unwrap();
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = HashWriter::<[u8; 3], Line>::attach(&memory, &readers).unwrap();
    for number in 0..20 {
        writer.insert(&[number, 0, 0], &Line([number.into(); 8])).unwrap();
    }
    for number in 0..20 {
        let found = writer.get(&[number, 0, 0]).unwrap();
        assert_eq!(*found.value, Line([number.into(); 8]));
        assert!(std::ptr::from_ref(found.value).addr().is_multiple_of(64));
    }
}

#[test]
fn another_type_is_refused_by_name() {
    let memory = Spec::hash::<[u8; 4], u64>("sessions", 10).typed(5).create().unwrap();
    let error = |result: Result<_, TableError>| result.err().unwrap().to_string();
    let message = error(HashReader::<[u8; 8], u64>::attach(&memory).map(drop));
    assert!(message.contains("'sessions': its key size is 4, this program expects 8"), "{message}");
    let message = error(HashReader::<[u8; 4], u32>::attach(&memory).map(drop));
    assert!(message.contains("value size is 8"), "{message}");
    let message = error(HashReader::<[u8; 4], [u8; 8]>::attach(&memory).map(drop));
    assert!(message.contains("alignment"), "{message}");
    assert_eq!(Spec::of(&memory).unwrap().type_hash, 5);

    let file = std::os::fd::AsFd::as_fd(&*memory).try_clone_to_owned().unwrap();
    let read_only = Arc::new(SharedMemory::attach_read_only(file).unwrap());
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let message = error(HashWriter::<[u8; 4], u64>::attach(&read_only, &readers).map(drop));
    assert!(message.contains("mapped for reading only"), "{message}");
    assert!(HashReader::<[u8; 4], u64>::attach(&read_only).is_ok());
}

#[test]
fn state_is_zero_when_an_entry_id_is_given_out_again() {
    let memory = Spec::hash::<u32, u32>("owners", 4).create().unwrap();
    let counts = Spec::state::<2>("counts", 4, 3).create().unwrap();
    let state = State::<2>::attach(&counts).unwrap();
    // SAFETY: what was found is not borrowed while the writer writes.
    let readers = Arc::new(unsafe { Readers::none() });
    let mut writer = HashWriter::<u32, u32>::attach(&memory, &readers).unwrap();
    writer.with_state(state.clone());
    for key in 0..100 {
        let entry = writer.insert(&key, &key).unwrap();
        assert_eq!(state.read(entry), [0; 2], "key {key}");
        state.lane(key as usize % 3).at(entry).add(1, u64::from(key) + 1);
        writer.insert(&key, &0).unwrap(); // an update keeps the state
        assert_eq!(state.read(entry), [0, u64::from(key) + 1]);
        if key >= 3 {
            assert!(writer.remove(&(key - 3)));
        }
    }
}
