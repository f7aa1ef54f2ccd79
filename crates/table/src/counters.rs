//! Counters of an application, in one memfd.
//!
//! ```text
//! word   0  magic "fastlane"          5  words of a lane block
//!        1  version                   6  words of a port block
//!        2  lanes                     7  word of the first name
//!        3  ports                     8  word of the first block
//!        4  (zero)
//! names  six words (48 bytes, zero padded UTF-8) each: lane counters, then port counters
//! blocks lane 0, port 0 of lane 0, port 1 of lane 0, ..., lane 1, ..., then one block per port
//!        that the process writes outside the lanes (steering)
//! ```
//! Every block (a counter slot) begins on a cache line of its own. The names are in the memory, so
//! a reader in any language can list counters that it was not built with. Every word has one
//! writer: the lane, or the process for page faults and the last blocks. Counters only grow, unless
//! their name says otherwise.
//!
//! # Examples
//! ```
//! use fastlane_table::counters::{Counters, LaneCounter, PortCounter};
//!
//! let counters = Counters::create(2, 1)?; // two lanes, one port
//! counters.port(0, 0).add(PortCounter::ReceivedPackets, 3); // lane 0 received
//! counters.port(1, 0).add(PortCounter::ReceivedPackets, 4); // lane 1 received
//! counters.lane(1).publish(LaneCounter::Turn, 1);
//! assert_eq!(counters.port_total(0, PortCounter::ReceivedPackets), 7);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::shared_words::WordBlock;
use crate::{SharedMemory, SharedWords};

const MAGIC: u64 = u64::from_le_bytes(*b"fastlane");
const VERSION: u64 = 2;
const HEADER_WORDS: usize = 16;
const NAME_WORDS: usize = 6;
/// Number of words in a cache line. Two writers never share one.
const CACHE_LINE_WORDS: usize = 8;
/// Number of turns between two full fences of a lane. [`Readers`](crate::Readers) explains their
/// purpose. A fence costs about 8 ns, so not every turn has one.
pub const FENCE_TURNS: u64 = 16;

mod names;
pub use names::{DownReason, LaneCounter, PortCounter};

/// Offsets of the names and blocks, in words, computed from the numbers of lanes and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterLayout {
    lanes: usize,
    ports: usize,
    lane_words: usize,
    port_words: usize,
    names: usize,
    blocks: usize,
}

impl CounterLayout {
    fn of(lanes: usize, ports: usize) -> Self {
        let lane_words = LaneCounter::ALL.len().next_multiple_of(CACHE_LINE_WORDS);
        let port_words = PortCounter::ALL.len().next_multiple_of(CACHE_LINE_WORDS);
        let names = LaneCounter::ALL.len() + PortCounter::ALL.len();
        let blocks = (HEADER_WORDS + names * NAME_WORDS).next_multiple_of(CACHE_LINE_WORDS);
        Self { lanes, ports, lane_words, port_words, names: HEADER_WORDS, blocks }
    }

    fn lane(&self, lane: usize) -> usize {
        self.blocks + lane * (self.lane_words + self.ports * self.port_words)
    }

    fn port(&self, lane: usize, port: usize) -> usize {
        self.lane(lane) + self.lane_words + port * self.port_words
    }

    /// Returns the first word of the block that the process writes for a port.
    fn shared_port(&self, port: usize) -> usize {
        self.lane(self.lanes) + port * self.port_words
    }

    fn words(&self) -> usize {
        self.shared_port(self.ports)
    }
}

/// All counters of an application. Its process creates them; whoever has the descriptor reads them.
#[derive(Clone, Debug)]
pub struct Counters {
    memory: Arc<SharedMemory>,
    layout: CounterLayout,
}

impl Counters {
    /// Creates zeroed counters.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the memory.
    pub fn create(lanes: usize, ports: usize) -> io::Result<Self> {
        let layout = CounterLayout::of(lanes, ports);
        let memory = SharedMemory::create("fastlane-counters", layout.words() * 8)?;
        memory.populate()?;
        memory.forbid_other_writers()?;
        let memory = Arc::new(memory);
        let header = SharedWords::new(&memory, 0, layout.blocks).map_err(io::Error::other)?;
        let fields = [VERSION, lanes as u64, ports as u64, 0, layout.lane_words as u64];
        for (index, field) in fields.into_iter().enumerate() {
            header.store(index + 1, field);
        }
        header.store(6, layout.port_words as u64);
        header.store(7, layout.names as u64);
        header.store(8, layout.blocks as u64);
        let lane_names = LaneCounter::ALL.iter().map(|counter| counter.name());
        let port_names = PortCounter::ALL.iter().map(|counter| counter.name());
        for (index, name) in lane_names.chain(port_names).enumerate() {
            let mut bytes = [0; NAME_WORDS * 8];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            for (word, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let at = layout.names + index * NAME_WORDS + word;
                header.store(at, u64::from_le_bytes(*chunk));
            }
        }
        header.store_release(0, MAGIC);
        Ok(Self { memory, layout })
    }

    /// Attaches to counters that another process of the same version created.
    ///
    /// # Errors
    /// Returns an error if the memory has another layout, or is smaller than its header states.
    pub fn attach(memory: SharedMemory) -> io::Result<Self> {
        let memory = Arc::new(memory);
        let bad =
            |what: &str| io::Error::other(format!("not the counters of this version: {what}"));
        let header = SharedWords::new(&memory, 0, HEADER_WORDS).map_err(|_| bad("too small"))?;
        if header.load_acquire(0) != MAGIC {
            return Err(bad("wrong magic"));
        }
        if header.load(1) != VERSION {
            return Err(bad(&format!("version {}, expected {VERSION}", header.load(1))));
        }
        let bounded = |index| usize::try_from(header.load(index)).ok().filter(|n| *n <= 4096);
        let (Some(lanes), Some(ports)) = (bounded(2), bounded(3)) else {
            return Err(bad("more than 4096 lanes or ports"));
        };
        let layout = CounterLayout::of(lanes, ports);
        let written = [layout.lane_words, layout.port_words, layout.names, layout.blocks];
        if (0..4).any(|index| header.load(index + 5) != written[index] as u64) {
            return Err(bad("another set of counters"));
        }
        if memory.len() < layout.words() * 8 {
            return Err(bad("smaller than its header says"));
        }
        Ok(Self { memory, layout })
    }

    /// Returns the memory, to be passed to a reader.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.layout.lanes
    }

    /// Returns the number of ports.
    #[must_use]
    pub fn ports(&self) -> usize {
        self.layout.ports
    }

    fn block<const W: usize>(&self, first: usize) -> WordBlock<W> {
        WordBlock::new(&self.memory, first).expect("the layout was checked against the memory")
    }

    /// Returns the counters of a lane. Only that lane may write them.
    ///
    /// # Panics
    /// Panics if there is no such lane.
    #[must_use]
    pub fn lane(&self, lane: usize) -> LaneCounters {
        assert!(lane < self.layout.lanes, "lane {lane} of {}", self.layout.lanes);
        LaneCounters(self.block(self.layout.lane(lane)))
    }

    /// Returns the counters of a port in a lane. Only that lane may write them.
    ///
    /// # Panics
    /// Panics if there is no such lane or port.
    #[must_use]
    pub fn port(&self, lane: usize, port: usize) -> PortCounters {
        assert!(lane < self.layout.lanes, "lane {lane} of {}", self.layout.lanes);
        assert!(port < self.layout.ports, "port {port} of {}", self.layout.ports);
        PortCounters(self.block(self.layout.port(lane, port)))
    }

    /// Returns the counters of a port that the process writes outside the lanes, such as those of
    /// steering.
    ///
    /// # Panics
    /// Panics if there is no such port.
    #[must_use]
    pub fn shared_port(&self, port: usize) -> PortCounters {
        assert!(port < self.layout.ports, "port {port} of {}", self.layout.ports);
        PortCounters(self.block(self.layout.shared_port(port)))
    }

    /// Returns the reason why a port is down, or `None` while it is up.
    ///
    /// # Panics
    /// Panics if there is no such port.
    #[must_use]
    pub fn down_reason(&self, port: usize) -> Option<DownReason> {
        DownReason::from_number(self.shared_port(port).load(PortCounter::DownReason))
    }

    /// Sets the reason why a port is down; `None` while it is up. Only the process that created the
    /// counters may call it, outside of the lanes.
    ///
    /// # Panics
    /// Panics if there is no such port.
    pub fn set_down_reason(&self, port: usize, reason: Option<DownReason>) {
        let number = reason.map_or(0, |reason| reason as u64);
        self.shared_port(port).store(PortCounter::DownReason, number);
    }

    /// Returns a counter of a port, summed over the lanes and the process.
    #[must_use]
    pub fn port_total(&self, port: usize, counter: PortCounter) -> u64 {
        let lanes = (0..self.lanes()).map(|lane| self.port(lane, port).load(counter));
        lanes.fold(self.shared_port(port).load(counter), u64::wrapping_add)
    }
}

/// Counters of one lane.
#[derive(Clone, Debug)]
pub struct LaneCounters(WordBlock<{ LaneCounter::ALL.len() }>);

impl LaneCounters {
    /// Adds to a counter. Only the lane itself may call it.
    #[inline]
    pub fn add(&self, counter: LaneCounter, amount: u64) {
        add(&self.0.written()[counter as usize], amount);
    }

    /// Overwrites a counter and publishes everything written before. Only the lane itself may call
    /// it, except for page faults, which another thread of the process counts. Turn numbers are
    /// published one by one; every [`FENCE_TURNS`]th is followed by a full fence.
    #[inline]
    pub fn publish(&self, counter: LaneCounter, value: u64) {
        self.0.written()[counter as usize].store(value, Ordering::Release);
        if counter == LaneCounter::Turn && value.is_multiple_of(FENCE_TURNS) {
            fence(Ordering::SeqCst);
        }
    }

    /// Returns the value of a counter.
    #[inline]
    #[must_use]
    pub fn load(&self, counter: LaneCounter) -> u64 {
        // A fence instead of an acquiring load: on memory that is mapped read-only the standard
        // library allows relaxed loads only (std::sync::atomic, "Atomic accesses to read-only
        // memory").
        let value = self.0.words()[counter as usize].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }
}

/// Counters of one port in one lane.
#[derive(Clone, Debug)]
pub struct PortCounters(WordBlock<{ PortCounter::ALL.len() }>);

impl PortCounters {
    /// Adds to a counter. Only its one writer may call it.
    #[inline]
    pub fn add(&self, counter: PortCounter, amount: u64) {
        add(&self.0.written()[counter as usize], amount);
    }

    /// Adds received packets and their bytes. Only the one writer of the counters may call it.
    #[inline]
    pub fn add_received(&self, packets: u64, bytes: u64) {
        let words = self.0.written();
        add(&words[PortCounter::ReceivedPackets as usize], packets);
        add(&words[PortCounter::ReceivedBytes as usize], bytes);
    }

    /// Adds transmitted packets and their bytes. Only the one writer of the counters may call it.
    #[inline]
    pub fn add_sent(&self, packets: u64, bytes: u64) {
        let words = self.0.written();
        add(&words[PortCounter::SentPackets as usize], packets);
        add(&words[PortCounter::SentBytes as usize], bytes);
    }

    /// Overwrites a counter. Only its one writer may call it.
    #[inline]
    pub fn store(&self, counter: PortCounter, value: u64) {
        self.0.written()[counter as usize].store(value, Ordering::Relaxed);
    }

    /// Returns the value of a counter.
    #[inline]
    #[must_use]
    pub fn load(&self, counter: PortCounter) -> u64 {
        self.0.words()[counter as usize].load(Ordering::Relaxed)
    }
}

/// Adds to a word of which the caller is the only writer: a load and a store without a lock.
#[inline]
fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
