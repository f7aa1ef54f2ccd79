//! Lanes that only read and publish their turns.

use std::cell::Cell;
use std::hint::black_box;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use fastlane_table::counters::LaneCounter;
use fastlane_table::{Guard, HashEntry, HashReader, LaneState, Lpm6Reader, RecordReader, State};

use super::tables::{FIXED, KEYS, PREFIXES, Random, Rules, Tables, Value, address, prefix};

const BATCH: usize = 16;
const ROUTES: usize = 32;

struct Lane {
    hash: HashReader<u64, Value>,
    state: LaneState<2>,
    record: RecordReader<Rules>,
    routes: Lpm6Reader,
    /// Latest version of the record.
    rules: Cell<u64>,
}

pub(crate) fn run(tables: &Tables, number: usize, stop: &AtomicBool, looks: &AtomicU64) {
    let [hash, state, record, routes, ..] = &tables.memories;
    let mut random = Random(number as u64 + 77);
    let lane = Lane {
        hash: HashReader::attach(hash).unwrap(),
        state: State::attach(state).unwrap().lane(number),
        record: RecordReader::attach(record).unwrap(),
        routes: Lpm6Reader::attach(routes).unwrap(),
        rules: Cell::new(0),
    };
    let counters = tables.counters.lane(number);
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        // SAFETY: the turn number is published after the guard's borrow has ended, and the writers
        // count this lane.
        let guard = unsafe { Guard::new() };
        lane.turn(&guard, &mut random);
        counters.publish(LaneCounter::Turn, turn);
        if turn % 20 == number as u64 {
            counters.publish(LaneCounter::Asleep, 1);
            std::thread::sleep(Duration::from_micros(50));
            counters.publish(LaneCounter::Asleep, 0);
            fence(Ordering::SeqCst);
        }
    }
    counters.publish(LaneCounter::Ended, 1);
    looks.fetch_add(turn, Ordering::Relaxed);
}

impl Lane {
    fn turn(&self, guard: &Guard, random: &mut Random) {
        let keys: [u64; BATCH] = std::array::from_fn(|_| random.below(KEYS));
        let mut found = [None; BATCH];
        let one = random.below(KEYS);
        let rules = *self.look_at_record(guard);
        let held = self.record.get(guard);
        self.hash.get_many(guard, &keys, &mut found);
        for (key, found) in keys.into_iter().zip(found) {
            self.check(key, found);
        }
        self.check(one, self.hash.get(guard, &one));
        self.look_at_routes(guard, random);
        // A borrowed value must not change until the turn ends.
        (0..random.below(200)).for_each(|n| _ = black_box(n));
        for (key, found) in keys.into_iter().zip(found) {
            let Some(found) = found else { continue };
            assert!(found.value.is_whole() && found.value.key == key, "{key} became {found:?}");
        }
        let held = held.expect("the record is always there");
        assert!(held[0] == [held[0][0]; 8] && held[1] == [!held[0][0]; 8], "{held:?}");
        assert!(held[0][0] >= rules[0][0], "the record went back");
    }

    fn check(&self, key: u64, found: Option<HashEntry<'_, Value>>) {
        let Some(found) = found else {
            assert!(key >= FIXED, "key {key} is always there and was not found");
            return;
        };
        assert!(found.value.is_whole() && found.value.key == key, "{key} is {found:?}");
        // The first lane with this entry stores its key; no other key's state may be there.
        let words = self.state.at(found.entry);
        if words.get(1) == 0 {
            assert_eq!(words.get(0), 0, "counts of a deleted entry, now of key {key}");
            words.set(1, key + 1);
        }
        assert_eq!(words.get(1), key + 1, "state of another key in {:?}", found.entry);
        words.add(0, 1);
    }

    fn look_at_record<'t>(&'t self, guard: &'t Guard) -> &'t Rules {
        let rules = self.record.get(guard).expect("the record is always there");
        let version = rules[0][0];
        assert!(rules[0] == [version; 8] && rules[1] == [!version; 8], "a mixture: {rules:?}");
        assert!(
            version >= self.rules.get(),
            "the record went back from {} to {version}",
            self.rules.get()
        );
        self.rules.set(version);
        rules
    }

    fn look_at_routes(&self, guard: &Guard, random: &mut Random) {
        let outside = Ipv6Addr::new(random.below(0x2000) as u16, 1, 2, 3, 4, 5, 6, 7);
        // Two addresses are looked up one by one, 32 with vector instructions.
        let count = if random.below(2) == 0 { 2 } else { ROUTES };
        let mut addresses: [_; ROUTES] = std::array::from_fn(|_| address(random));
        addresses[0] = outside;
        let mut values = [None; ROUTES];
        self.routes.lookup_many(guard, &addresses[..count], &mut values);
        for (address, value) in addresses.into_iter().zip(values).take(count) {
            let value = u64::from(value.expect("a route is always there").get()) >> 8;
            if address == outside {
                assert_eq!(value, 0, "{outside} has a route that does not cover it");
                continue;
            }
            assert!((1..PREFIXES).contains(&value), "{address} has not the route of its part");
            assert!(prefix(value).contains(address), "{address} has route {value}");
        }
        assert!(self.routes.lookup(guard, addresses[1]).is_some());
    }
}

/// Reads copies without a guard, so that no writer waits for it.
pub(crate) fn look_on(tables: &Tables, stop: &AtomicBool) {
    let hash = HashReader::<u64, Value>::attach(&tables.memories[0]).unwrap();
    let record = RecordReader::<Rules>::attach(&tables.memories[2]).unwrap();
    let mut random = Random(4711);
    while !stop.load(Ordering::Relaxed) {
        let key = random.below(KEYS);
        let copy = hash.copy(&key).map(|(_, value)| value);
        assert!(copy.is_some() || key >= FIXED, "key {key} is always there and was not copied");
        assert!(copy.is_none_or(|value| value.is_whole() && value.key == key), "{copy:?}");
        let rules = record.copy().expect("the record is always there");
        assert_eq!(rules, super::tables::rules(rules[0][0]));
        if random.below(50) == 0 {
            let all: Vec<_> = hash.copies().collect();
            assert!(all.iter().all(|(key, _, value)| value.is_whole() && value.key == *key));
            let fixed = (0..FIXED).filter(|key| all.iter().any(|(other, ..)| other == key));
            assert_eq!(fixed.count() as u64, FIXED, "not all that is always there was copied");
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}
