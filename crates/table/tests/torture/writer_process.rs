//! Writer process, and checks after its death.

use std::net::Ipv6Addr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use fastlane_table::{
    HashWriter, Lpm6Writer, Readers, RecordWriter, SharedWords, State, TableError,
};

use super::tables::{FIXED, KEYS, PREFIXES, Random, Rules, Tables, Value, address, prefix, rules};

pub(crate) const DESCRIPTORS: &str = "FASTLANE_TORTURE_DESCRIPTORS";
pub(crate) const SEED: &str = "FASTLANE_TORTURE_SEED";

/// Words of the log. A state is twice a version, plus one if the item exists.
pub(crate) const ALIVE: usize = 0;
const VERSION: usize = 1;
/// First of the words with the wanted state of the record, each key, and each prefix.
const WANTED: usize = 16;
/// First of the words with the reached state of each.
const REACHED: usize = 1024;
const RECORD: usize = 0;
const KEY: usize = 1;
const PREFIX: usize = KEY + KEYS as usize;

struct Writers {
    hash: HashWriter<u64, Value>,
    record: RecordWriter<Rules>,
    routes: Lpm6Writer,
    log: SharedWords,
}

impl Writers {
    fn attach(tables: &Tables) -> Self {
        let [hash, state, record, routes, ..] = &tables.memories;
        // SAFETY: the lanes of this test publish their turns there.
        let readers = Arc::new(unsafe { Readers::lanes(&tables.counters) });
        let mut hash = HashWriter::attach(hash, &readers).unwrap();
        hash.with_state(State::<2>::attach(state).unwrap());
        let record = RecordWriter::attach(record, &readers).unwrap();
        let routes = Lpm6Writer::attach(routes, &readers).unwrap();
        Self { hash, record, routes, log: tables.log.clone() }
    }

    /// Logs the wanted state, performs the operation, logs it as reached.
    fn step(&mut self, thing: usize, there: bool, act: impl FnOnce(&mut Self, u64) -> WriteResult) {
        let version = self.log.load(VERSION) + 1;
        self.log.store_release(VERSION, version);
        let before = self.log.load(REACHED + thing);
        let wanted = 2 * version + u64::from(there);
        self.log.store_release(WANTED + thing, wanted);
        match act(self, version) {
            Ok(()) => self.log.store_release(REACHED + thing, wanted),
            // The lanes of this test share two processors and are slow at times.
            Err(TableError::Full { .. } | TableError::Stalled { .. }) => {
                self.log.store_release(WANTED + thing, before);
            }
            Err(error) => panic!("{error}"),
        }
        self.log.store_release(ALIVE, self.log.load(ALIVE) + 1);
    }

    fn change_key(&mut self, key: u64, there: bool) {
        self.step(KEY + key as usize, there, |writers, version| {
            if there {
                writers.hash.insert(&key, &Value::new(key, version)).map(drop)
            } else {
                writers.hash.remove(&key);
                Ok(())
            }
        });
    }

    fn change_prefix(&mut self, number: u64, there: bool) {
        self.step(PREFIX + number as usize, there, |writers, version| {
            if there {
                // Lower bits of the version, so that the value changes.
                writers.routes.insert(prefix(number), (number << 8 | version & 0xFF) as u32)
            } else {
                writers.routes.remove(prefix(number));
                Ok(())
            }
        });
    }

    fn change_record(&mut self) {
        self.step(RECORD, true, |writers, version| writers.record.set(&rules(version)));
    }

    fn change_something(&mut self, random: &mut Random) {
        match random.below(16) {
            0..10 => {
                let key = random.below(KEYS);
                self.change_key(key, key < FIXED || random.below(2) == 0);
            }
            10..12 => self.change_record(),
            // Rarely a prefix of everything: it writes 65,536 words.
            12 if random.below(40) == 0 => self.change_prefix(0, true),
            _ => {
                let number = 1 + random.below(PREFIXES - 1);
                self.change_prefix(number, number == 1 || random.below(2) == 0);
            }
        }
    }
}

type WriteResult = Result<(), TableError>;

/// Inserts the items that always exist.
pub(crate) fn fill(tables: &Tables) {
    let mut writers = Writers::attach(tables);
    (0..FIXED).for_each(|key| writers.change_key(key, true));
    (0..2).for_each(|number| writers.change_prefix(number, true));
    writers.change_record();
}

pub(crate) fn run() {
    let number = |text: &str| text.parse().expect("a number");
    // If the process that started this one was killed, this one is too.
    let signal = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(signal).unwrap();
    let descriptors = std::env::var(DESCRIPTORS).expect("this is started by the torture test");
    let files: Vec<OwnedFd> = descriptors
        .split(' ')
        // SAFETY: the test left these descriptors open for this process.
        .map(|text| unsafe { OwnedFd::from_raw_fd(number(text)) })
        .collect();
    let tables = Tables::attach(files.try_into().unwrap());
    let mut random = Random(number(&std::env::var(SEED).unwrap()) as u64 * 0x9E37_79B9);
    let mut writers = Writers::attach(&tables);
    loop {
        writers.change_something(&mut random);
    }
}

/// Checks that completed operations are visible, the pending one is or is not, and nothing else is.
pub(crate) fn check_after_a_kill(tables: &Tables) {
    let writers = Writers::attach(tables);
    assert!(writers.hash.repaired() <= 1, "{} words were wrong", writers.hash.repaired());
    let mut keys = 0;
    for key in 0..KEYS {
        let found = writers.hash.get(&key).map(|found| *found.value);
        assert!(found.is_none_or(|value| value.is_whole() && value.key == key), "{found:?}");
        settle(tables, KEY + key as usize, found.map(|value| value.version), "key");
        keys += usize::from(found.is_some());
    }
    assert_eq!((writers.hash.len(), writers.hash.iter().count()), (keys, keys));
    let record = writers.record.get().expect("the record is always there");
    assert_eq!(*record, rules(record[0][0]));
    settle(tables, RECORD, Some(record[0][0]), "record");
    check_routes(tables, &writers.routes);
}

/// Checks that an item is in the state reached last or in the wanted one, and logs that state as
/// reached.
fn settle(tables: &Tables, thing: usize, version: Option<u64>, what: &str) {
    let (wanted, reached) = (tables.log.load(WANTED + thing), tables.log.load(REACHED + thing));
    let is = |state: u64| match version {
        Some(version) => state == 2 * version + 1,
        None => state & 1 == 0,
    };
    assert!(is(wanted) || is(reached), "{what} {thing}: {version:?} of {wanted}, {reached}");
    let now = if is(wanted) { wanted } else { reached };
    tables.log.store(WANTED + thing, now);
    tables.log.store(REACHED + thing, now);
}

fn check_routes(tables: &Tables, routes: &Lpm6Writer) {
    for number in 0..PREFIXES {
        let thing = PREFIX + number as usize;
        let states = [WANTED, REACHED].map(|state| tables.log.load(state + thing));
        let value = routes.get(prefix(number)).map(u64::from);
        // The value contains only the lower bits of the version.
        let is = |state: &u64| match value {
            Some(value) => state & 1 == 1 && value == number << 8 | state >> 1 & 0xFF,
            None => state & 1 == 0,
        };
        let now = states.iter().find(|state| is(state));
        let now = now.unwrap_or_else(|| panic!("prefix {number}: {value:?} of {states:?}"));
        tables.log.store(WANTED + thing, *now);
        tables.log.store(REACHED + thing, *now);
    }
    let all: Vec<_> = routes.iter().collect();
    let mut random = Random(routes.len() as u64 + 1);
    let others = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, Ipv6Addr::from_bits(u128::MAX)];
    for address in others.into_iter().chain((0..50).map(|_| address(&mut random))) {
        let covering = all.iter().filter(|(prefix, _)| prefix.contains(address));
        let best = covering.max_by_key(|(prefix, _)| prefix.length());
        assert_eq!(routes.lookup(address), best.map(|(_, value)| *value), "{address}");
    }
}
