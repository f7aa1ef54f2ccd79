//! The entries and queries of the tables: reproducible, from a generator with a fixed seed.

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Result;

/// Number of lookups between two reads of the clock. Each set of queries holds a multiple of it.
pub const CHUNK: usize = 8192;
/// Number of next hops of routes, which start at 1.
const HOPS: u64 = 60_000;

/// Entries and queries as bytes, readable by C programs.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Number of entries.
    pub count: usize,
    /// Entries, all of the same size.
    pub entries: Vec<u8>,
    /// Size of a query in bytes.
    pub query: usize,
    /// Sets of queries.
    pub sets: Vec<Vec<u8>>,
}

/// Random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn key(&mut self) -> [u8; 16] {
        let [low, high] = [self.next(), self.next()];
        (u128::from(low) | u128::from(high) << 64).to_ne_bytes()
    }

    /// Returns a value of `weights` with a probability proportional to its weight.
    pub(crate) fn weighted(&mut self, weights: &[(u32, u64)]) -> u32 {
        let mut left = self.below(weights.iter().map(|(_, weight)| weight).sum());
        for (value, weight) in weights {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        weights[0].0
    }
}

/// Creates an exact-match workload: keys of 16 bytes, values of 64 bytes. All queries of the first
/// set hit, half of the second set miss.
#[must_use]
pub fn exact(count: usize) -> Workload {
    let mut random = Random::new(0x00ff_1ce0);
    let keys: Vec<[u8; 16]> = (0..count).map(|_| random.key()).collect();
    let mut entries = Vec::with_capacity(count * 80);
    for key in &keys {
        entries.extend_from_slice(key);
        (0..8).for_each(|_| entries.extend_from_slice(&random.next().to_ne_bytes()));
    }
    // Enough queries to touch most entries, but few enough to limit the memory traffic of the
    // queries.
    let queries = count.next_power_of_two().max(1 << 16);
    let mut set = |misses: u64| {
        let query = |_| match random.below(100) < misses {
            true => random.key(),
            false => keys[random.below(count as u64) as usize],
        };
        (0..queries).flat_map(query).collect()
    };
    let sets = vec![set(0), set(50)];
    Workload { count, entries, query: 16, sets }
}

/// Frequencies of the prefix lengths per 10,000 routes, in the shape of the IPv4 table of the
/// Internet. That table has nothing longer than /24, but a router has such routes of its own.
const LENGTHS: [(u32, u64); 25] = [
    (24, 5_900),
    (23, 990),
    (22, 1_090),
    (21, 510),
    (20, 440),
    (19, 260),
    (18, 140),
    (17, 85),
    (16, 140),
    (15, 20),
    (14, 12),
    (13, 6),
    (12, 3),
    (11, 1),
    (10, 1),
    (9, 1),
    (8, 1),
    (25, 4),
    (26, 4),
    (27, 4),
    (28, 4),
    (29, 4),
    (30, 4),
    (31, 2),
    (32, 4),
];

/// Frequencies of the IPv6 prefix lengths.
const LENGTHS6: [(u32, u64); 16] = [
    (48, 4_600),
    (32, 1_300),
    (44, 950),
    (40, 900),
    (36, 500),
    (29, 400),
    (46, 350),
    (47, 300),
    (33, 200),
    (34, 150),
    (38, 100),
    (42, 100),
    (45, 80),
    (56, 40),
    (64, 25),
    (128, 5),
];

/// Creates IPv4 routes. Queries: uniform over all addresses; 50,000 and 1,000 addresses of routes.
#[must_use]
pub fn routes(count: usize) -> Workload {
    let mut random = Random::new(0xb9b9);
    let mut seen = HashSet::new();
    let mut all = Vec::with_capacity(count);
    let mut entries = Vec::with_capacity(count * 12);
    while all.len() < count {
        let length = random.weighted(&LENGTHS);
        // Unicast addresses: 1.0.0.0 to 223.255.255.255.
        let address =
            (0x0100_0000 + random.below(0xdf00_0000)) as u32 & (u32::MAX << (32 - length));
        let hop = 1 + random.below(HOPS) as u32;
        if seen.insert((address, length)) {
            all.push((address, length));
            for word in [address, length, hop] {
                entries.extend_from_slice(&word.to_ne_bytes());
            }
        }
    }
    let uniform = (0..1 << 22).flat_map(|_| (random.next() as u32).to_ne_bytes()).collect();
    let mut some = |addresses: usize| -> Vec<u8> {
        let of_routes: Vec<u32> = (0..addresses)
            .map(|_| {
                let (address, length) = all[random.below(all.len() as u64) as usize];
                address | (random.next() as u32).checked_shr(length).unwrap_or(0)
            })
            .collect();
        let query = |_| of_routes[random.below(addresses as u64) as usize].to_ne_bytes();
        (0..1 << 17).flat_map(query).collect()
    };
    let sets = vec![uniform, some(50_000), some(1_000)];
    Workload { count, entries, query: 4, sets }
}

/// Creates IPv6 routes. They lie in blocks of 32 bits of a few dozen larger blocks, as registries
/// assign them. Queries: addresses of routes.
#[must_use]
pub fn routes6(count: usize) -> Workload {
    let mut random = Random::new(0x6b6b);
    let tops: Vec<u32> = [0x2001_u32]
        .into_iter()
        .chain(0x2400..0x2408)
        .chain(0x2600..0x2608)
        .chain(0x2800..0x2804)
        .chain(0x2a00..0x2a11)
        .chain([0x2c0f])
        .collect();
    let mut top = || tops[random.below(tops.len() as u64) as usize] << 16;
    let firsts: Vec<u32> = (0..count / 8).map(|_| top()).collect();
    let blocks: Vec<u32> =
        firsts.iter().map(|first| first | random.below(1 << 16) as u32).collect();
    let mut seen = HashSet::new();
    let mut all = Vec::with_capacity(count);
    let mut entries = Vec::with_capacity(count * 24);
    while all.len() < count {
        let length = random.weighted(&LENGTHS6);
        let block = blocks[random.below(blocks.len() as u64) as usize];
        let rest = u128::from_ne_bytes(random.key()) >> 32;
        let address = (u128::from(block) << 96 | rest) & (u128::MAX << (128 - length));
        let hop = 1 + random.below(HOPS) as u32;
        if seen.insert((address, length)) {
            all.push((address, length));
            entries.extend_from_slice(&address.to_be_bytes());
            entries.extend_from_slice(&length.to_ne_bytes());
            entries.extend_from_slice(&hop.to_ne_bytes());
        }
    }
    let query = |_| {
        let (address, length) = all[random.below(all.len() as u64) as usize];
        let rest = u128::from_ne_bytes(random.key()).checked_shr(length).unwrap_or(0);
        (address | rest).to_be_bytes()
    };
    let sets = vec![(0..1 << 20).flat_map(query).collect()];
    Workload { count, entries, query: 16, sets }
}

/// Workload in a file that other programs read; the file is removed on drop.
pub struct File(PathBuf);

impl File {
    /// Writes a workload. The header, in words of 64 bits, holds the number of entries, the size of
    /// an entry, the number of sets and the number of queries of each set. Entries and queries
    /// follow.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(workload: &Workload) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fastlane-lookups-{}-{number}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        let mut output = BufWriter::new(std::fs::File::create_new(&file.0)?);
        let size = workload.entries.len() / workload.count;
        let queries = workload.sets.iter().map(|set| set.len() / workload.query);
        let header = [workload.count, size, workload.sets.len()].into_iter().chain(queries);
        for word in header {
            output.write_all(&(word as u64).to_ne_bytes())?;
        }
        output.write_all(&workload.entries)?;
        workload.sets.iter().try_for_each(|set| output.write_all(set))?;
        output.flush()?;
        Ok(file)
    }

    /// Reads a workload with queries of `query` bytes.
    ///
    /// # Errors
    /// Returns an error if the file is not such a workload.
    pub fn read(path: &Path, query: usize) -> Result<Workload> {
        let content =
            std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut rest = &content[..];
        let mut take = |length: usize| {
            rest.split_off(..length).ok_or_else(|| format!("{}: cut off", path.display()))
        };
        let mut word =
            || -> Result<usize> { Ok(u64::from_ne_bytes(take(8)?.try_into()?) as usize) };
        let [count, size, sets] = [word()?, word()?, word()?];
        let lengths = (0..sets).map(|_| word()).collect::<Result<Vec<usize>>>()?;
        let entries = take(count * size)?.to_vec();
        let set = |length: usize| Ok(take(length * query)?.to_vec());
        let sets = lengths.into_iter().map(set).collect::<Result<_>>()?;
        Ok(Workload { count, entries, query, sets })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Workload {
    /// Returns the entries of an exact-match table.
    pub fn pairs(&self) -> impl Iterator<Item = ([u8; 16], [u64; 8])> {
        self.entries.as_chunks::<80>().0.iter().map(|entry| {
            let (key, value) = entry.split_at(16);
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(value.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            (std::array::from_fn(|place| key[place]), words)
        })
    }

    /// Returns the routes: address (IPv4 in the lower bits), length, next hop.
    pub fn routes(&self) -> impl Iterator<Item = (u128, u32, u32)> {
        let address = self.entries.len() / self.count - 8;
        self.entries.chunks_exact(address + 8).map(move |entry| {
            let (bytes, words) = entry.split_at(address);
            let word = |place: usize| {
                u32::from_ne_bytes(std::array::from_fn(|byte| words[4 * place + byte]))
            };
            let address = match bytes.len() {
                4 => u32::from_ne_bytes(std::array::from_fn(|byte| bytes[byte])).into(),
                _ => u128::from_be_bytes(std::array::from_fn(|byte| bytes[byte])),
            };
            (address, word(0), word(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_what_was_written() {
        for workload in [exact(100), routes(1000), routes6(1000)] {
            let file = File::write(&workload).unwrap();
            let read = File::read(file.path(), workload.query).unwrap();
            assert_eq!(read.entries, workload.entries);
            assert!(read.sets == workload.sets);
            assert!(read.sets.iter().all(|set| set.len() % (CHUNK * workload.query) == 0));
        }
    }

    #[test]
    fn routes_look_like_the_internets() {
        let workload = routes(20_000);
        let all: Vec<_> = workload.routes().collect();
        let long = all.iter().filter(|(_, length, _)| *length == 24).count();
        assert!((11_000..13_000).contains(&long), "{long}");
        assert!(all.iter().all(|(address, length, hop)| {
            *hop > 0 && *address as u32 & u32::MAX.checked_shr(*length).unwrap_or(0) == 0
        }));
        let six = routes6(20_000);
        assert!(six.routes().all(|(address, length, _)| {
            address >> 125 == 1 && address & u128::MAX.checked_shr(length).unwrap_or(0) == 0
        }));
        let pairs: Vec<_> = exact(64).pairs().collect();
        assert_eq!(pairs.len(), 64);
    }
}
