//! A table is resized while lanes read it.
#![allow(unsafe_code, reason = "guards: the lanes of this test publish their turns")]

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};

use fastlane_table::counters::{Counters, LaneCounter};
use fastlane_table::{
    EntryId, Guard, HashReader, HashWriter, Readers, SharedMemory, Spec, State, TableError,
};

/// Number of keys that always exist; the others come and go.
const FIXED: u64 = 100;
const OTHERS: u64 = 100;
const LANES: usize = 2;

type Value = [u64; 4];

fn value(key: u64, version: u64) -> Value {
    [key, version, key ^ version, !version]
}

fn look(
    number: usize,
    counters: &Counters,
    newest: &Mutex<Arc<SharedMemory>>,
    state: &State<1>,
    stop: &AtomicBool,
) -> u64 {
    let counters = counters.lane(number);
    let state = state.lane(number);
    let mut reader = HashReader::<u64, Value>::attach(&newest.lock().unwrap()).unwrap();
    let mut versions = vec![0; (FIXED + OTHERS) as usize];
    let mut entries: Vec<Option<EntryId>> = vec![None; FIXED as usize];
    let (mut turn, mut exchanged) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        // SAFETY: the turn number is published after the guard's borrow has ended.
        let guard = unsafe { Guard::new() };
        if reader.is_superseded() {
            reader = HashReader::attach(&newest.lock().unwrap()).unwrap();
            exchanged += 1;
        }
        for key in 0..FIXED + OTHERS {
            let Some(found) = reader.get(&guard, &key) else {
                assert!(key >= FIXED, "key {key} is always there and was not found");
                continue;
            };
            let version = found.value[1];
            assert_eq!(*found.value, value(key, version));
            assert!(version >= versions[key as usize], "key {key} went back");
            versions[key as usize] = version;
            let words = state.at(found.entry);
            if words.get(0) == 0 {
                words.set(0, key + 1);
            }
            assert_eq!(words.get(0), key + 1, "state of another key");
            if key < FIXED {
                let entry = entries[key as usize].get_or_insert(found.entry);
                assert_eq!(*entry, found.entry, "key {key} has another entry id");
            }
        }
        counters.publish(LaneCounter::Turn, turn);
        if turn % 16 == 0 {
            counters.publish(LaneCounter::Asleep, 1);
            std::thread::sleep(std::time::Duration::from_micros(20));
            counters.publish(LaneCounter::Asleep, 0);
            fence(Ordering::SeqCst);
        }
    }
    counters.publish(LaneCounter::Ended, 1);
    exchanged
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn lanes_follow_a_table_through_its_sizes() {
    let counters = Counters::create(LANES, 0).unwrap();
    let memory = Spec::hash::<u64, Value>("resized", 210).create().unwrap();
    let state = State::<1>::attach(&Spec::state::<1>("state", 300, LANES).create().unwrap());
    let (state, stop) = (state.unwrap(), AtomicBool::new(false));
    // SAFETY: the lanes of this test publish their turns there.
    let readers = Arc::new(unsafe { Readers::lanes(&counters) });
    let mut writer = HashWriter::<u64, Value>::attach(&memory, &readers).unwrap();
    writer.with_state(state.clone());
    for key in 0..FIXED {
        writer.insert(&key, &value(key, 0)).unwrap();
    }
    let newest = Mutex::new(memory);
    let exchanged: Vec<u64> = std::thread::scope(|scope| {
        let stop_them = StopOnDrop(&stop);
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let (counters, newest, state, stop) = (&counters, &newest, &state, &stop);
                scope.spawn(move || {
                    let _stop_all = StopOnDrop(stop);
                    look(lane, counters, newest, state, stop)
                })
            })
            .collect();
        for version in 1..60 {
            change(&mut writer, version);
            // The old table is marked as superseded only when the new one is available.
            let mut newest = newest.lock().unwrap();
            let (after, resized) = writer.resize(210 + version as usize % 40);
            writer = after;
            *newest = resized.unwrap();
        }
        drop(stop_them);
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    assert!(exchanged.iter().all(|count| *count > 1), "{exchanged:?} exchanges");
    assert_eq!(HashReader::<u64, Value>::attach(&newest.lock().unwrap()).unwrap().generation(), 60);
}

fn change(writer: &mut HashWriter<u64, Value>, version: u64) {
    for key in 0..FIXED + OTHERS {
        if key >= FIXED && (key + version).is_multiple_of(3) {
            writer.remove(&key);
            continue;
        }
        // Lanes share the processors with other tests and are slow at times.
        while let Err(error) = writer.insert(&key, &value(key, version)) {
            assert!(matches!(error, TableError::Stalled { .. }), "{error}");
        }
    }
}
