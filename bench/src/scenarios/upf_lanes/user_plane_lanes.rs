//! The user plane on several lanes at once. All lanes share the tables. The shards split the
//! sessions between the lanes, and each lane has a memory port with packets of its own sessions.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fastlane::PortId;
use fastlane_core::{App, Idle, Lane, LaneConfig, Pool, Port};
use fastlane_local::memory::Memory;
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};
use upf::datapath::Routes;
use upf::rules::layout::table;

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::memory_lane::{frame, macswap};
use crate::loops::user_plane::counted_packets::OneWay;
use crate::loops::user_plane::frames::Template;
use crate::loops::user_plane::sessions::{Sessions, Shape, Users};
use crate::loops::user_plane::{
    BURST, Direction, Renewed, RouteMirror, all_forwarded, lane as ask_mirror,
};
use crate::scenarios::lanes::parallel::cpus;
use crate::slices::timed;

/// Number of frames in the list of a lane.
const LIST: usize = 1 << 15;
/// Size of a frame of the pool, and headroom before a packet, in bytes.
const FRAME_SIZE: usize = 2048;
const HEADROOM: usize = 192;
/// Number of frames of each lane, as in the measurements with one lane.
const FRAMES: usize = crate::device::memory_lane::FRAMES as usize;
/// Number of turns between two reads of the clock.
const TURNS: u64 = 256;

/// Tables, counters and packets of several lanes.
pub struct Shared {
    sessions: Sessions,
    counters: Counters,
    lanes: usize,
}

/// Work of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Forward packets in one direction.
    Forward(Direction),
    /// Swap the addresses of the frames of one direction.
    Macswap(Direction),
}

impl std::fmt::Display for Work {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forward(direction) => write!(formatter, "upf, {}", direction.name()),
            Self::Macswap(direction) => write!(formatter, "macswap, {}", direction.name()),
        }
    }
}

/// Packets of a lane's UEs, and the index of the lane.
pub struct Packets {
    template: Template,
    lane: usize,
}

/// Configuration of a lane, and its application.
pub type Parts<A> = (LaneConfig, A);

impl Shared {
    /// Creates the tables for `lanes` lanes with `sessions` sessions each, whose URRs have a
    /// threshold of `threshold` octets.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(lanes: usize, sessions: u32, threshold: u64) -> Result<Self> {
        let count = sessions * lanes as u32;
        let mut users = Users::new(Shape::Simple, count);
        users.threshold = threshold;
        let sessions = Sessions::of(users, lanes)?;
        Ok(Self { sessions, counters: Counters::create(lanes, 1)?, lanes })
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the lane of a session; the shards are assigned to the lanes round-robin.
    #[must_use]
    pub fn owner(&self, session: u32) -> usize {
        usize::from(session as u8) % self.lanes
    }

    /// Returns packets of sessions of a lane.
    #[must_use]
    pub fn packets(&self, lane: usize, direction: Direction) -> Packets {
        let users = self.sessions.users();
        let template = Template::of(users, direction, LIST, |session| self.owner(session) == lane);
        Packets { template, lane }
    }

    /// Creates the user plane of a lane that receives these packets. The lane is created in its own
    /// thread.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn user_plane<'p, R: Routes>(
        &self,
        packets: &'p Packets,
        routes: R,
    ) -> Result<Parts<impl App + use<'p, R>>> {
        let app = self.sessions.user_plane_of(packets.lane, routes)?;
        Ok((self.parts(packets)?, Renewed::new(app, &packets.template)))
    }

    /// Creates a user plane like [`user_plane`](Self::user_plane), with fixed routes that need no
    /// Linux.
    ///
    /// # Errors
    /// Returns the same errors as [`user_plane`](Self::user_plane).
    pub fn forwarding<'p>(&self, packets: &'p Packets) -> Result<Parts<impl App + Send + use<'p>>> {
        let app = self.sessions.user_plane_of(packets.lane, OneWay)?;
        Ok((self.parts(packets)?, Renewed::new(app, &packets.template)))
    }

    /// Creates the configuration of a lane with a memory port.
    fn parts(&self, packets: &Packets) -> Result<LaneConfig> {
        let memory = SharedMemory::create("bench-lane", FRAMES * FRAME_SIZE)?;
        let mut pool = Pool::new(memory, FRAME_SIZE, HEADROOM)?;
        let first = frame(packets.template.shape().0);
        let queue = Memory::filled(PortId(0), &mut pool, FRAMES, &first)?;
        let port = Port {
            queues: vec![Box::new(queue)],
            kernel: None,
            filter: None,
            counters: self.counters.port(packets.lane, 0),
        };
        let parts = LaneConfig::new(pool, vec![port], self.counters.lane(packets.lane));
        Ok(LaneConfig { burst: BURST, kernel_budget: 64, idle: Idle::Busy, ..parts })
    }

    /// Returns the tables of all lanes, by name.
    ///
    /// # Errors
    /// Returns an error if a table does not exist.
    pub fn memories(&self) -> Result<BTreeMap<&'static str, Arc<SharedMemory>>> {
        const TABLES: [&str; 10] = [
            table::RULES,
            table::BLOCKS,
            table::TUNNELS,
            table::USERS,
            table::FRAMED4,
            table::FRAMED6,
            table::FRAMED,
            table::STATE,
            table::EVENTS,
            table::CAUSES,
        ];
        let mut memories = BTreeMap::new();
        for name in TABLES {
            memories.insert(name, self.sessions.table(name)?);
        }
        Ok(memories)
    }

    /// Returns the counters of all lanes.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks that all packets so far were forwarded.
    ///
    /// # Errors
    /// Returns an error that names the outcome of other packets.
    pub fn all_forwarded(&self) -> Result<()> {
        all_forwarded(&self.sessions.causes()?)
    }

    /// Runs these lanes at once for `length`, each on its own CPU. Returns the nanoseconds of CPU
    /// time per packet of each lane. Without `ways` the routes are fixed and need no Linux.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or a packet is not forwarded.
    pub fn round(
        &self,
        work: Work,
        packets: &[&Packets],
        ways: Option<&RouteMirror>,
        length: Duration,
    ) -> Result<Vec<f64>> {
        let all = packets.iter();
        match (work, ways) {
            (Work::Macswap(_), _) => self.at_once(
                all.map(|packets| {
                    Ok((self.parts(packets)?, Renewed::new(macswap, &packets.template)))
                }),
                packets,
                length,
            ),
            (Work::Forward(_), Some(ways)) => self.at_once(
                all.map(|packets| self.user_plane(packets, ask_mirror(ways)?)),
                packets,
                length,
            ),
            (Work::Forward(_), None) => {
                self.at_once(all.map(|packets| self.forwarding(packets)), packets, length)
            }
        }
    }

    /// Creates the lanes as an application does, one after the other in one thread, and runs them
    /// at once.
    fn at_once<A: App + Send>(
        &self,
        lanes: impl Iterator<Item = Result<Parts<A>>>,
        packets: &[&Packets],
        length: Duration,
    ) -> Result<Vec<f64>> {
        let lanes: Vec<Parts<A>> = lanes.collect::<Result<_>>()?;
        let (cpus, barrier) = (cpus(), Barrier::new(lanes.len()));
        let counters = &self.counters;
        let run = |(parts, app): Parts<A>, number: usize| {
            let sent = counters.port(number, 0);
            pin(cpus[number % cpus.len()]);
            let mut lane = Lane::new(app, parts);
            barrier.wait();
            let cost = cost(&mut lane, length, || sent.load(PortCounter::SentPackets));
            match lane.close() {
                0 => cost,
                lost => Err(format!("{lost} frames did not come back").into()),
            }
        };
        let costs = std::thread::scope(|scope| {
            let run = &run;
            let start = |(lane, packets): (Parts<A>, &&Packets)| {
                let number = packets.lane;
                scope.spawn(move || run(lane, number))
            };
            let threads: Vec<_> = lanes.into_iter().zip(packets).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<f64>>>()
        });
        self.all_forwarded()?;
        costs
    }
}

/// Returns the CPU time per packet of a lane with warm caches, in nanoseconds.
fn cost<A: App>(lane: &mut Lane<A>, length: Duration, sent: impl Fn() -> u64) -> Result<f64> {
    let mut last = sent();
    let mut turns = || {
        (0..TURNS).for_each(|_| {
            lane.turn();
        });
        let before = std::mem::replace(&mut last, sent());
        Ok(last - before)
    };
    timed(length / 4, &mut turns)?;
    let slice = timed(length, turns)?;
    Ok(slice.cpu as f64 / slice.packets.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_move_in_every_lane() {
        let shared = Shared::new(2, 100, 1 << 60).unwrap();
        for direction in [Direction::Uplink, Direction::Downlink] {
            let packets = [0, 1].map(|lane| shared.packets(lane, direction));
            for work in [Work::Forward(direction), Work::Macswap(direction)] {
                for some in [vec![&packets[1]], packets.iter().collect()] {
                    let costs = shared.round(work, &some, None, Duration::from_millis(20)).unwrap();
                    assert_eq!(costs.len(), some.len());
                    assert!(costs.iter().all(|cost| *cost > 0.5), "{work}: {costs:?}");
                }
            }
        }
    }
}
