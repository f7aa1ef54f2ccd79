//! The same work for each subscriber, with state that lanes share under a lock and with state that
//! one lane owns: the experiment of "5G VNF stacks", on lanes.
//!
//! Packets of 20,000 subscribers arrive in each lane. A packet costs *private* work (a chain of
//! multiplications) and a *section* that reads and writes the subscriber's words. With shared state
//! any lane works for any subscriber, and a lock guards the section. With owned state a subscriber
//! belongs to one lane: its packets arrive there or pass through the lanes' exchange. The section
//! then checks for each packet that the words belong to this lane.

use std::hint::{black_box, spin_loop};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_core::{
    App, Burst, Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Sent, Statistics, Turn,
    Verdict,
};
use fastlane_local::ring::{doorbells, lane_ring};
use fastlane_sharding::{
    ExchangeConfig, FrameShard, LaneBy, LaneRing, ShardClassifier, ShardExchange, Shards,
};
use fastlane_table::counters::Counters;
use fastlane_table::{EntryId, LaneState, SharedMemory, Spec, State};

use crate::Result;
use crate::device::cpu_time::{pin, undisturbed};
use crate::loops::lookup::workload::Random;
use crate::scenarios::lanes::parallel::cpus;

pub mod model;

/// Number of subscribers. With N lanes, each lane owns every Nth subscriber.
pub const SUBSCRIBERS: u32 = 20_000;
/// Number of words of a subscriber, 512 bytes.
const WORDS: usize = 64;
/// Indices of the word that names the owner and of the packet counter.
const OWNER: usize = 0;
const COUNT: usize = 1;
/// Number of locks in the sharded variant.
const LOCKS: usize = 256;
/// Length of a packet, and offset of the subscriber's number in it, in bytes.
const LENGTH: usize = 60;
const NUMBER: usize = 14;
/// Number of slots of the ring between two lanes.
const PLACES: usize = 256;
const FRAME_SIZE: usize = 2048;
const HEADROOM: usize = 192;
const FRAMES: usize = 1024;
/// Number of turns between two reads of the clock.
const TURNS: u64 = 16;
/// Time in which caches and rings reach a steady state.
const WARM_UP: Duration = Duration::from_millis(10);

/// Protection of the subscribers' state against concurrent lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One mutex of the standard library (a futex).
    Mutex,
    /// One spin lock.
    Spin,
    /// 256 mutexes, selected by the subscriber's number.
    Sharded,
    /// No lock: packets of a subscriber arrive in its lane.
    Owned,
    /// No lock: packets arrive in any lane and are passed to the subscriber's lane.
    Passed,
}

impl Sharing {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Owned, Self::Passed, Self::Mutex, Self::Spin, Self::Sharded];

    fn is_owned(self) -> bool {
        matches!(self, Self::Owned | Self::Passed)
    }
}

impl std::fmt::Display for Sharing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Mutex => "shared, one mutex",
            Self::Spin => "shared, one spin lock",
            Self::Sharded => "shared, 256 mutexes",
            Self::Owned => "owned, arrives there",
            Self::Passed => "owned, passed there",
        })
    }
}

/// Work for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of steps of private work (see [`steps`]).
    pub steps: u64,
    /// Number of words of the subscriber that are read and written, at most 64; with 0 there is no
    /// lock.
    pub section: usize,
}

/// Returns the number of steps of private work that currently take `nanoseconds`.
#[must_use]
pub fn steps(nanoseconds: f64) -> u64 {
    const MANY: u64 = 1 << 20;
    let once = || {
        let start = crate::slices::thread_cpu();
        black_box(private(black_box(1), MANY));
        (crate::slices::thread_cpu() - start) as f64 / MANY as f64
    };
    let each = (0..9).map(|_| once()).fold(f64::INFINITY, f64::min);
    (nanoseconds / each).round() as u64
}

#[inline(always)]
fn private(mut word: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    word
}

/// Source of subscribers' packets that never runs empty.
struct Source {
    random: Random,
    /// The subscriber numbers are `first + multiple of step`.
    first: u32,
    step: u32,
}

impl Queue for Source {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        while burst.room() > 0 {
            let Some(mut packet) = pool.alloc_packet(LENGTH, PortId(0)) else { return };
            let number = self.random.below((SUBSCRIBERS / self.step).into()) as u32;
            let number = self.first + number * self.step;
            packet.bytes_mut()[NUMBER..NUMBER + 4].copy_from_slice(&number.to_le_bytes());
            if let Err(mut packet) = burst.push(packet) {
                return pool.release(&mut packet);
            }
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        packets.iter_mut().for_each(|packet| pool.release(packet));
        Sent { taken: packets.len(), packets: packets.len(), bytes: 0 }
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, _: &mut Pool) {}
}

fn number(frame: &[u8]) -> u32 {
    let bytes = frame.get(NUMBER..NUMBER + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// Classifier that uses the lowest bits of the number as the shard: `id = slot << 8 | shard`.
struct ByNumber;

impl ShardClassifier for ByNumber {
    fn classify(&mut self, frame: &[u8]) -> FrameShard {
        FrameShard::Shard(number(frame) as u8)
    }
}

/// Locks of all variants.
#[derive(Default)]
struct Locks {
    one: Mutex<()>,
    spin: Spin,
    many: Vec<Apart>,
}

/// Mutex on its own cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Apart(Mutex<()>);

#[derive(Default)]
#[repr(align(128))]
struct Spin(AtomicBool);

impl Spin {
    #[inline]
    fn lock(&self) {
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[inline]
fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Application that does the work of each packet.
struct Serving {
    way: Sharing,
    work: Work,
    /// Number of this lane, from 1, as stored in the words.
    name: u64,
    state: LaneState<WORDS>,
    locks: Arc<Locks>,
    done: u64,
    /// Number of packets whose subscriber another lane has written.
    foreign: u64,
    sum: u64,
    /// The numbers `done`, `foreign` and `sum`, readable after the lane has ended.
    told: Arc<[AtomicU64; 3]>,
}

impl Serving {
    #[inline]
    fn section(&mut self, number: u32, word: u64) {
        let words = self.state.at(EntryId(number));
        if self.way.is_owned() {
            match words.get(OWNER) {
                0 => words.set(OWNER, self.name),
                owner => self.foreign += u64::from(owner != self.name),
            }
        }
        words.add(COUNT, 1);
        for place in COUNT + 1..self.work.section.min(WORDS) {
            words.add(place, word);
        }
    }
}

impl App for Serving {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        let locks = Arc::clone(&self.locks);
        for packet in packets {
            let number = number(packet.bytes());
            let word = private(number.into(), self.work.steps);
            self.sum = self.sum.wrapping_add(word);
            match self.way {
                _ if self.work.section == 0 => {}
                Sharing::Mutex => {
                    let _guard = lock(&locks.one);
                    self.section(number, word);
                }
                Sharing::Spin => {
                    locks.spin.lock();
                    self.section(number, word);
                    locks.spin.unlock();
                }
                Sharing::Sharded => {
                    let _guard = lock(&locks.many[number as usize % LOCKS].0);
                    self.section(number, word);
                }
                Sharing::Owned | Sharing::Passed => self.section(number, word),
            }
            self.done += 1;
            packet.set_verdict(Verdict::Drop);
        }
        for (told, number) in self.told.iter().zip([self.done, self.foreign, self.sum]) {
            told.store(number, Ordering::Relaxed);
        }
    }
}

/// Lanes of one slice.
struct Built {
    lanes: Vec<(LaneConfig, Serving, Option<ExchangeConfig>)>,
    state: State<WORDS>,
    _counters: Counters,
}

fn pool() -> Result<Pool> {
    let memory = SharedMemory::create("bench-subscriber", FRAMES * FRAME_SIZE)?;
    Ok(Pool::new(memory, FRAME_SIZE, HEADROOM)?)
}

fn build(way: Sharing, work: Work, lanes: usize) -> Result<Built> {
    let counters = Counters::create(lanes, 1)?;
    let memory = Spec::state::<WORDS>("subscribers", SUBSCRIBERS as usize, 0).create()?;
    let state = State::<WORDS>::attach(&memory)?;
    // Page faults must not fall into the measured time.
    let first = state.lane(0);
    (0..SUBSCRIBERS).for_each(|number| first.at(EntryId(number)).set(WORDS - 1, 1));
    let many = (0..LOCKS).map(|_| Apart::default()).collect();
    let locks = Arc::new(Locks { many, ..Locks::default() });
    let mut exchanges = match way {
        Sharing::Passed if lanes > 1 => exchanges(lanes)?.into_iter().map(Some).collect(),
        _ => Vec::new(),
    };
    exchanges.resize_with(lanes, || None);
    let lane = |(lane, exchange): (usize, _)| {
        let (first, step) =
            if way == Sharing::Owned { (lane as u32, lanes as u32) } else { (0, 1) };
        let source = Source { random: Random::new(1 + lane as u64), first, step };
        let queues: Vec<Box<dyn Queue>> = vec![Box::new(source)];
        let port = counters.port(lane, 0);
        let ports = vec![Port { queues, kernel: None, filter: None, counters: port }];
        let mut parts = LaneConfig::new(pool()?, ports, counters.lane(lane));
        parts.idle = Idle::Busy;
        let (name, state, locks) = (lane as u64 + 1, state.lane(lane), Arc::clone(&locks));
        let (done, foreign, sum) = (0, 0, 0);
        let told = Arc::default();
        let app = Serving { way, work, name, state, locks, done, foreign, sum, told };
        Ok((parts, app, exchange))
    };
    let lanes = exchanges.into_iter().enumerate().map(lane).collect::<Result<_>>()?;
    Ok(Built { lanes, state, _counters: counters })
}

/// Creates the exchanges. Each lane receives packets of its own, and the shards are distributed
/// evenly.
fn exchanges(lanes: usize) -> Result<Vec<ExchangeConfig>> {
    let memory = Arc::new(SharedMemory::create("bench-shards", Shards::bytes(lanes))?);
    let owners: Vec<usize> = (0..lanes).collect();
    let shards = Shards::new(&memory, lanes, &owners)?;
    let bells = doorbells(lanes)?;
    let mut ways: Vec<Vec<Option<Box<dyn LaneRing>>>> = Vec::new();
    ways.resize_with(lanes, || (0..lanes).map(|_| None).collect());
    for one in 0..lanes {
        for other in one + 1..lanes {
            let [near, far] = lane_ring([&bells[one], &bells[other]], PLACES, FRAME_SIZE);
            ways[one][other] = Some(Box::new(near));
            ways[other][one] = Some(Box::new(far));
        }
    }
    let parts = |(lane, passages)| {
        Ok(ExchangeConfig {
            lane,
            rings: passages,
            lane_by: vec![LaneBy::Key(Box::new(ByNumber))],
            carriers: vec![None],
            has_application: true,
            shards: shards.clone(),
            migration_pool: pool()?,
        })
    };
    ways.into_iter().enumerate().map(parts).collect()
}

/// Results of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Packets of all lanes per nanosecond.
    pub rate: f64,
    /// Number of packets of subscribers that another lane had written.
    pub foreign: u64,
}

/// Runs `lanes` lanes at once for `length`, each on its own CPU with real-time priority.
///
/// # Errors
/// Returns an error if there are too few CPUs, if a frame is lost, if the packet counts in the
/// state do not add up, or if two lanes wrote an owned subscriber.
pub fn slice(way: Sharing, work: Work, lanes: usize, length: Duration) -> Result<Served> {
    let cpus = cpus();
    if lanes > cpus.len() {
        return Err(format!("{lanes} lanes, but only {} CPUs", cpus.len()).into());
    }
    let Built { lanes: parts, state, _counters } = build(way, work, lanes)?;
    let barrier = Barrier::new(lanes);
    let results: Vec<Result<(f64, u64, u64)>> = std::thread::scope(|scope| {
        let start = |((parts, app, exchange), &cpu): (
            (LaneConfig, Serving, Option<ExchangeConfig>),
            &usize,
        )| {
            let barrier = &barrier;
            scope.spawn(move || {
                pin(cpu);
                let burst = parts.burst;
                let mut lane = Lane::new(app, parts);
                if let Some(exchange) = exchange {
                    lane.join(Box::new(ShardExchange::new(exchange, burst)));
                }
                undisturbed(|| time(lane, length, barrier))
            })
        };
        let threads: Vec<_> = parts.into_iter().zip(&cpus).map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut served = Served::default();
    let mut done = 0;
    for result in results {
        let (rate, foreign, packets) = result?;
        served.rate += rate;
        served.foreign += foreign;
        done += packets;
    }
    let count = |number| state.read(EntryId(number))[COUNT];
    let traces: u64 = (0..SUBSCRIBERS).map(count).sum();
    if work.section > 0 && traces != done {
        return Err(
            format!("{way}: {done} packets were processed, but {traces} were counted").into()
        );
    }
    match served.foreign {
        0 => Ok(served),
        count => {
            Err(format!("{way}: {count} packets of subscribers that another lane had written")
                .into())
        }
    }
}

/// Runs turns for `length`. Returns the packets per nanosecond, the packets of subscribers that
/// another lane had written, and all packets.
fn time(mut lane: Lane<Serving>, length: Duration, barrier: &Barrier) -> Result<(f64, u64, u64)> {
    let mut turns = |until: Instant| {
        while Instant::now() < until {
            (0..TURNS).for_each(|_| {
                lane.turn();
            });
        }
        lane.app().done
    };
    barrier.wait();
    let warm = turns(Instant::now() + WARM_UP);
    let start = Instant::now();
    let done = turns(start + length) - warm;
    let rate = done as f64 / start.elapsed().as_nanos() as f64;
    // No lane may end while another one is timed or still needs its packets.
    barrier.wait();
    // While it closes, a lane still processes the packets that were passed to it.
    let told = Arc::clone(&lane.app().told);
    match lane.close() {
        0 => {
            let [done, foreign, _] = told.each_ref().map(|told| told.load(Ordering::Relaxed));
            Ok((rate, foreign, done))
        }
        lost => Err(format!("{lost} frames did not come back").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_serves_each_packet_and_owners_are_alone() {
        for lanes in 1..=cpus().len().min(2) {
            for way in Sharing::ALL {
                let work = Work { steps: 10, section: WORDS };
                let served = slice(way, work, lanes, Duration::from_millis(5)).unwrap();
                assert!(served.rate > 0.0 && served.foreign == 0, "{way} {served:?}");
            }
        }
    }

    #[test]
    fn two_lanes_that_write_one_subscriber_are_found_out() {
        let Built { lanes, state, _counters } =
            build(Sharing::Owned, Work { steps: 0, section: 8 }, 2).unwrap();
        let mut apps = lanes.into_iter().map(|(_, app, _)| app);
        let (mut one, mut other) = (apps.next().unwrap(), apps.next().unwrap());
        one.section(7, 1);
        one.section(7, 1);
        assert_eq!(one.foreign, 0);
        other.section(7, 1);
        assert_eq!((other.foreign, state.read(EntryId(7))[COUNT]), (1, 3));
    }
}
