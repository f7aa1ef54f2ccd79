//! Tables of the torture test, and the properties of their contents.

use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fastlane_table::counters::Counters;
use fastlane_table::{Prefix, SharedMemory, SharedWords, Spec};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of keys; the first ones always exist.
pub(crate) const KEYS: u64 = 320;
pub(crate) const FIXED: u64 = 64;
/// Fewer than all keys, so that the table is full at times.
const CAPACITY: usize = 240;
/// Number of prefixes that come and go.
pub(crate) const PREFIXES: u64 = 64;

/// Value with redundancy, so that a mixture of two versions is detected.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Value {
    pub(crate) key: u64,
    pub(crate) version: u64,
    filler: [u64; 5],
    sum: u64,
}

impl Value {
    pub(crate) fn new(key: u64, version: u64) -> Self {
        let filler = std::array::from_fn(|at| (key << 32 ^ version).wrapping_mul(at as u64 + 3));
        let sum = filler.iter().fold(key ^ version, |sum, word| sum.rotate_left(7) ^ word);
        Self { key, version, filler, sum }
    }

    pub(crate) fn is_whole(&self) -> bool {
        *self == Self::new(self.key, self.version)
    }
}

/// Two rule sets that change together.
pub(crate) type Rules = [[u64; 8]; 2];

pub(crate) fn rules(version: u64) -> Rules {
    [[version; 8], [!version; 8]]
}

/// Memories, in the order in which their descriptors are passed on.
pub(crate) struct Tables {
    pub(crate) memories: [Arc<SharedMemory>; 6],
    pub(crate) counters: Counters,
    /// Log of the writer's pending and completed operations.
    pub(crate) log: SharedWords,
}

impl Tables {
    pub(crate) fn create() -> Self {
        let memory = |spec: Spec| spec.create().unwrap();
        let counters = Counters::create(super::LANES, 0).unwrap();
        let file = rustix::io::dup(counters.memory()).unwrap();
        let memories = [
            memory(Spec::hash::<u64, Value>("torture", CAPACITY)),
            memory(Spec::state::<2>("torture state", CAPACITY, super::LANES)),
            memory(Spec::record::<Rules>("torture rules")),
            memory(Spec::lpm6("torture routes", 100).with_groups(600)),
            Arc::new(SharedMemory::create("torture log", 1 << 16).unwrap()),
            Arc::new(SharedMemory::attach_read_only(file).unwrap()),
        ];
        let log = SharedWords::new(&memories[4], 0, 1 << 13).unwrap();
        Self { memories, counters, log }
    }

    /// Attaches to the tables from the descriptors, in the writer process.
    pub(crate) fn attach(files: [OwnedFd; 6]) -> Self {
        let mut number = 0;
        let memories = files.map(|file| {
            number += 1;
            let attach = match number {
                6 => SharedMemory::attach_read_only,
                _ => SharedMemory::attach_writable,
            };
            Arc::new(attach(file).unwrap())
        });
        let file = rustix::io::dup(&*memories[5]).unwrap();
        let counters = Counters::attach(SharedMemory::attach_read_only(file).unwrap()).unwrap();
        let log = SharedWords::new(&memories[4], 0, 1 << 13).unwrap();
        Self { memories, counters, log }
    }
}

/// Returns an address inside the prefixes that come and go.
pub(crate) fn address(random: &mut Random) -> Ipv6Addr {
    let [a, b, c] = [random.below(2), random.below(2), random.below(3)].map(|n| n as u16);
    Ipv6Addr::new(0x2001, 0xDB8, a << 15, b, c << 8, 0, 0, random.below(4) as u16)
}

/// Returns prefix `number` of those that come and go. The first two, the default route and the
/// common parent, always exist.
pub(crate) fn prefix(number: u64) -> Prefix<Ipv6Addr> {
    match number {
        0 => Prefix::new(Ipv6Addr::UNSPECIFIED, 0).unwrap(),
        1 => Prefix::new(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 0), 32).unwrap(),
        _ => Prefix::new(address(&mut Random(number)), 33 + (number * 7 % 96) as u8).unwrap(),
    }
}

/// Pseudo-random numbers (xorshift), the same in each run.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % limit
    }
}
