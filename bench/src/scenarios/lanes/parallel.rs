//! Lanes on several CPUs at once. The cost per packet must not grow with the number of lanes, since
//! no two lanes write the same memory.

use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::{Idle, Lane, LaneConfig, Pool, Port, PortId, Queue};
use fastlane_local::memory::Memory;
use fastlane_local::ring;
use fastlane_memif::{Address, Link, MemifSettings, Role};
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};
use rustix::thread::sched_getaffinity;

use crate::Result;
use crate::device::application::Filled;
use crate::device::cpu_time::pin;
use crate::device::memory_lane::frame;
use crate::slices::timed;

/// Size of a frame of the pool, and headroom before a packet, in bytes.
const FRAME_SIZE: usize = 2048;
const HEADROOM: usize = 192;
/// Number of frames of each lane.
const FRAMES: usize = 1024;
/// Number of packets of a memory port, or between two lanes.
const PACKETS: u64 = 256;
/// Number of slots of a ring between two lanes.
const PLACES: usize = 512;
/// Number of turns between two reads of the clock.
const TURNS: u64 = 256;
/// Time in which packets must start to flow.
const PATIENCE: Duration = Duration::from_secs(3);

/// Work of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Each lane swaps the addresses of the packets of its own memory port.
    Memory,
    /// Two lanes send packets to each other over a ring, which copies them.
    Ring,
    /// Two lanes send packets to each other over memif.
    Memif,
}

impl std::fmt::Display for Work {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory",
            Self::Ring => "pairs over a ring",
            Self::Memif => "pairs over memif",
        })
    }
}

impl Work {
    /// All kinds of work.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Ring, Self::Memif];

    /// Returns true if `lanes` lanes can do this work.
    #[must_use]
    pub fn suits(self, lanes: usize) -> bool {
        lanes > 0 && (self == Self::Memory || lanes.is_multiple_of(2))
    }
}

/// Returns the CPUs that this process may use, in order.
#[must_use]
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None);
    let allowed = |cpu: &usize| set.as_ref().is_ok_and(|set| set.is_set(*cpu));
    (0..rustix::thread::CpuSet::MAX_CPU).filter(allowed).collect()
}

/// Runs `lanes` lanes at once for `length`, each on its own CPU. Returns the nanoseconds of CPU
/// time per packet of each lane.
///
/// # Errors
/// Returns an error if there are too few CPUs or no packet moves.
pub fn round(work: Work, lanes: usize, length: Duration) -> Result<Vec<f64>> {
    let cpus = cpus();
    if lanes > cpus.len() {
        return Err(format!("{lanes} lanes, but only {} CPUs", cpus.len()).into());
    }
    let flows = AtomicBool::new(false);
    let built = Built::new(work, lanes)?;
    let barrier = Barrier::new(lanes);
    let results: Vec<Result<f64>> = std::thread::scope(|scope| {
        let Built { lanes, counters, ends } = built;
        let threads: Vec<_> = lanes
            .into_iter()
            .zip(&cpus)
            .enumerate()
            .map(|(number, ((parts, app), &cpu))| {
                let sent = counters.port(number, 0);
                let (barrier, flows) = (&barrier, &flows);
                scope.spawn(move || {
                    pin(cpu);
                    let mut lane = Lane::new(app, parts);
                    let sent = || sent.load(PortCounter::SentPackets);
                    let moves = flow(&mut lane, flows, sent);
                    barrier.wait();
                    let cost = moves.and_then(|()| cost(&mut lane, length, sent));
                    // No lane may end while another one still needs its packets.
                    barrier.wait();
                    match lane.close() {
                        0 => cost,
                        lost => Err(format!("{lost} frames did not come back").into()),
                    }
                })
            })
            .collect();
        ends.wait();
        flows.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    results.into_iter().collect()
}

/// Runs turns until packets move.
fn flow(lane: &mut Lane<Filled>, begin: &AtomicBool, sent: impl Fn() -> u64) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while sent() < PACKETS {
        lane.turn();
        if begin.load(Ordering::Relaxed) {
            lane.app().begin();
        }
        if Instant::now() > end {
            return Err("no packet moves between the lanes".into());
        }
    }
    Ok(())
}

fn cost(lane: &mut Lane<Filled>, length: Duration, sent: impl Fn() -> u64) -> Result<f64> {
    let mut last = sent();
    let slice = timed(length, || {
        (0..TURNS).for_each(|_| {
            lane.turn();
        });
        let before = std::mem::replace(&mut last, sent());
        Ok(last - before)
    })?;
    Ok(slice.cpu as f64 / slice.packets.max(1) as f64)
}

/// Configurations and applications of lanes.
pub struct Built {
    /// Configuration and application of each lane, which is created in its own thread.
    pub lanes: Vec<(LaneConfig, Filled)>,
    /// Counters of all lanes.
    pub counters: Counters,
    ends: Ends,
}

impl Built {
    /// Creates an empty set with room for `lanes` lanes.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn begin(lanes: usize) -> Result<Self> {
        let counters = Counters::create(lanes, 1)?;
        Ok(Self { lanes: Vec::with_capacity(lanes), counters, ends: Ends::new() })
    }

    /// Creates the lanes as an application does: one after the other in one thread, with one set of
    /// counters.
    fn new(work: Work, lanes: usize) -> Result<Self> {
        if !work.suits(lanes) {
            return Err(format!("{work}: not possible with {lanes} lanes").into());
        }
        let mut built = Self::begin(lanes)?;
        match work {
            Work::Memory => (0..lanes).try_for_each(|_| built.memory())?,
            Work::Ring => (0..lanes / 2).try_for_each(|_| {
                let (near, far) = ring::pair(PortId(0), PortId(0), PLACES)?;
                built.pair(Box::new(near), Box::new(far))
            })?,
            Work::Memif => (0..lanes / 2).try_for_each(|number| {
                let [near, far] = built.ends.open(number)?;
                built.pair(near, far)
            })?,
        }
        Ok(built)
    }

    /// Adds a lane with a memory port.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn memory(&mut self) -> Result<()> {
        let mut pool = pool()?;
        let queue = Memory::filled(PortId(0), &mut pool, PACKETS as usize, &frame(60))?;
        self.lane(pool, Box::new(queue), 0)
    }

    fn pair(&mut self, near: Box<dyn Queue>, far: Box<dyn Queue>) -> Result<()> {
        self.lane(pool()?, near, PACKETS)?;
        self.lane(pool()?, far, 0)
    }

    fn lane(&mut self, pool: Pool, queue: Box<dyn Queue>, packets: u64) -> Result<()> {
        let number = self.lanes.len();
        let port = Port {
            queues: vec![queue],
            kernel: None,
            filter: None,
            counters: self.counters.port(number, 0),
        };
        let counters = self.counters.lane(number);
        let ports = vec![port];
        let idle = Idle::Busy;
        let parts = LaneConfig::new(pool, ports, counters);
        let parts = LaneConfig { kernel_budget: 64, idle, ..parts };
        self.lanes.push((parts, Filled::new(packets, 60, true)));
        Ok(())
    }
}

fn pool() -> Result<Pool> {
    let memory = SharedMemory::create("bench-lane", FRAMES * FRAME_SIZE)?;
    Ok(Pool::new(memory, FRAME_SIZE, HEADROOM)?)
}

/// Owner of memif connections. The folder of the sockets is removed on drop.
struct Ends {
    links: Vec<Link>,
    directory: PathBuf,
}

impl Ends {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fastlane-lanes-{}-{number}", std::process::id());
        Self { links: Vec::new(), directory: std::env::temp_dir().join(name) }
    }

    /// Opens both ends of a connection.
    fn open(&mut self, number: usize) -> Result<[Box<dyn Queue>; 2]> {
        std::fs::create_dir_all(&self.directory)?;
        let socket = self.directory.join(number.to_string());
        let mut end = |role| -> Result<Box<dyn Queue>> {
            let settings = MemifSettings::new(Address::Path(socket.clone()), role);
            let (link, mut queues) = fastlane_memif::open(settings, PortId(0))?;
            self.links.push(link);
            Ok(Box::new(queues.pop().ok_or("no queue")?))
        };
        Ok([end(Role::Server)?, end(Role::Client)?])
    }

    /// Waits until all connections are established. Returns after a timeout too; then no packet
    /// moves.
    fn wait(&self) {
        let end = Instant::now() + PATIENCE / 2;
        let connected = || self.links.iter().all(|link| link.state().connected);
        while !connected() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The lanes attach to the rings in their next turns.
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.links.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_move_in_every_lane() {
        for work in Work::ALL {
            for lanes in [1, 2] {
                let result = round(work, lanes, Duration::from_millis(20));
                if !work.suits(lanes) || lanes > cpus().len() {
                    assert!(result.is_err(), "{work}, {lanes} lanes");
                    continue;
                }
                let costs = result.unwrap();
                assert_eq!(costs.len(), lanes);
                assert!(costs.iter().all(|cost| *cost > 0.5), "{work}: {costs:?}");
                eprintln!("{work} {costs:?}");
            }
        }
    }
}
