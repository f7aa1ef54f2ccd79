//! Exchange of packets between lanes, so that all packets of one key are processed by one lane.
//!
//! Packets of one key can arrive in several lanes. The key of a packet determines its *shard*, one
//! of 256, and the shard table ([`Shards`]) names the lane of each shard. Between receiving and
//! processing, a lane's [`ShardExchange`] passes packets of other lanes to them by a [`LaneRing`].
//! A lane processes all packets from its lane rings whatever their key is, so a packet is passed at
//! most once. Packets of one queue and one key stay in order. Each pair of lanes has its own rings:
//! a stalled lane delays only its own flows and holds at most one ring of frames.
//!
//! *Master-worker* is the same with two kinds of lanes. Lanes with ports and no application pass on
//! all packets. Workers have the application and no ports: they pass labelled packets back to the
//! lane that has the port, which carries out the verdict.
//!
//! A shard moves to another lane while packets flow ([`ShardMigration`]): its packets wait where
//! they arrive until its old lane has processed everything that was passed to it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

use fastlane_core::{Burst, Exchange, Packet, PacketOwnership, Pool, PortId, Sent, ShardOwnership};
use fastlane_table::counters::{LaneCounter, LaneCounters, PortCounter, PortCounters};

mod lane_ring;
mod migration;
mod migration_buffer;
mod shards;

pub use lane_ring::LaneRing;
pub use migration::{MigrationError, ShardMigration};
pub use shards::{Shards, ShardsError};

use migration_buffer::{MigrationBuffer, Offer};
use shards::{LaneShards, Owner};

#[cfg(test)]
mod tests;

/// Shard of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameShard {
    /// The packet belongs to this shard.
    Shard(u8),
    /// The packet has no key. The lane where it arrives shows it to its application; a lane without
    /// application passes it on as if it were of shard 0.
    None,
    /// An IP fragment. Only the first fragment carries the key, so all fragments go to Linux.
    Fragment,
}

/// Classifier that determines the shard of a packet from its key.
pub trait ShardClassifier: Send {
    /// Returns the shard of a frame.
    fn classify(&mut self, frame: &[u8]) -> FrameShard;
}

/// Distribution of the packets of a port to lanes.
pub enum LaneBy {
    /// The lane of arrival processes them.
    Arrival,
    /// The key of a packet determines its lane.
    Key(Box<dyn ShardClassifier>),
    /// The application determines the shard ([`App::shard`](fastlane_core::App::shard)).
    Application,
}

/// Parts of a [`ShardExchange`].
pub struct ExchangeConfig {
    /// Number of this lane.
    pub lane: usize,
    /// Rings to the other lanes, by their numbers; `None` for this lane and for lanes without a
    /// ring.
    pub rings: Vec<Option<Box<dyn LaneRing>>>,
    /// Distribution of the packets of each port.
    pub lane_by: Vec<LaneBy>,
    /// For each port, the lane that carries out verdicts for it in place of this one, which has no
    /// queue of the port or no path into Linux. `None` if there is no such lane.
    pub carriers: Vec<Option<usize>>,
    /// True if this lane has the application; without it no packet is processed here.
    pub has_application: bool,
    /// Shard table.
    pub shards: Shards,
    /// Frames for packets whose shard migrates. They are separate, so that the lane does not run
    /// out of frames.
    pub migration_pool: Pool,
}

/// Part of one lane in the exchange.
pub struct ShardExchange {
    has_application: bool,
    rings: Vec<Option<Box<dyn LaneRing>>>,
    lane_by: Vec<LaneBy>,
    carriers: Vec<Option<usize>>,
    shards: LaneShards,
    buffer: MigrationBuffer,
    /// Destination of each packet of the current burst.
    destinations: Vec<Destination>,
    /// Next lane to receive from in this turn.
    next_lane: usize,
    /// True until the migration buffer was polled in this turn.
    polls_buffer: bool,
    /// Epoch that this turn has read.
    epoch: u64,
    /// True if the lane has acknowledged the epoch.
    is_acknowledged: bool,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Here,
    Lane(u16),
    Buffer(u8),
}

impl ShardExchange {
    /// Creates the part of a lane whose bursts have at most `burst` packets.
    #[must_use]
    pub fn new(config: ExchangeConfig, burst: usize) -> Self {
        let ExchangeConfig { lane, rings, lane_by, carriers, has_application, shards, .. } = config;
        Self {
            has_application,
            rings,
            lane_by,
            carriers,
            shards: shards.lane(lane),
            buffer: MigrationBuffer::new(config.migration_pool),
            destinations: Vec::with_capacity(burst),
            next_lane: 0,
            polls_buffer: false,
            epoch: 0,
            is_acknowledged: true,
        }
    }

    /// Returns the destination of the packets of a shard.
    #[inline]
    fn destination(&mut self, shard: u8) -> Destination {
        self.shards.count(shard);
        // Packets in the buffer, or of this burst on their way to it, leave before newer ones.
        match self.shards.owner(shard) {
            Owner::Here if !self.buffer.has(shard) => Destination::Here,
            Owner::Lane(lane) if !self.buffer.has(shard) => Destination::Lane(lane),
            _ => {
                self.buffer.expect(shard);
                Destination::Buffer(shard)
            }
        }
    }

    fn send_runs(
        &mut self,
        counters: &PortCounters,
        mut packets: &mut [Packet],
        pool: &mut Pool,
    ) -> u64 {
        let mut buffered = 0;
        let mut destinations = &self.destinations[..];
        while let Some(destination) = destinations.first().copied() {
            let count = destinations.iter().take_while(|other| **other == destination).count();
            let (run, rest) = packets.split_at_mut(count);
            (packets, destinations) = (rest, &destinations[count..]);
            match destination {
                Destination::Here => {}
                Destination::Buffer(shard) => {
                    let stored = self.buffer.store(shard, run, pool);
                    buffered += stored as u64;
                    count_up(counters, PortCounter::DropPark, count - stored);
                }
                Destination::Lane(lane) => {
                    let ring = self.rings.get_mut(usize::from(lane));
                    let passed = pass(ring.and_then(Option::as_mut), run, pool);
                    count_passed(counters, passed, count);
                }
            }
            if destination != Destination::Here {
                run.iter_mut().for_each(|packet| pool.release(packet));
            }
        }
        buffered
    }

    /// Moves buffered packets whose shard has a lane again to that lane, or into the burst as long
    /// as there is room.
    #[cold]
    fn release_buffered(&mut self, counters: &[PortCounters], burst: &mut Burst, pool: &mut Pool) {
        let (shards, rings) = (&self.shards, &mut self.rings);
        self.buffer.release(pool, |shard, packet, pool| {
            let port = usize::from(packet.port().0);
            match shards.owner(shard) {
                Owner::Migrating => return Offer::Refused,
                Owner::Here => match burst.push(packet.take()) {
                    Ok(()) => return Offer::Accepted,
                    Err(back) => {
                        *packet = back;
                        return Offer::Refused;
                    }
                },
                Owner::Lane(lane) => {
                    let ring = rings.get_mut(usize::from(lane)).and_then(Option::as_mut);
                    let passed = pass(ring, std::slice::from_mut(packet), pool);
                    if let Some(counters) = counters.get(port) {
                        count_passed(counters, passed, 1);
                    }
                }
            }
            Offer::Accepted
        });
    }

    /// Acknowledges the epoch if all packets passed before it were read. Returns true if it was
    /// acknowledged.
    #[cold]
    fn acknowledge(&mut self) -> bool {
        let mut rings = self.rings.iter().flatten();
        self.is_acknowledged = rings.all(|ring| ring.has_reached_mark());
        if self.is_acknowledged {
            self.shards.acknowledge(self.epoch);
        }
        self.is_acknowledged
    }
}

impl Exchange for ShardExchange {
    fn distributes(&self, port: usize) -> bool {
        self.lane_by.get(port).is_some_and(|lane_by| !matches!(lane_by, LaneBy::Arrival))
    }

    fn ownership(&self) -> Box<dyn ShardOwnership> {
        Box::new(self.shards.ownership())
    }

    #[inline]
    fn begin_turn(&mut self) {
        (self.next_lane, self.polls_buffer) = (0, true);
        let epoch = self.shards.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.is_acknowledged = false;
            self.rings.iter_mut().flatten().for_each(|ring| ring.mark());
            self.buffer.look_again();
        }
    }

    fn assign(
        &mut self,
        port: usize,
        packets: &mut [Packet],
        shard: &mut dyn FnMut(&Packet) -> u8,
    ) -> bool {
        if matches!(self.lane_by[port], LaneBy::Arrival) {
            return true;
        }
        self.destinations.clear();
        let mut all_stay = true;
        for packet in packets {
            let frame_shard = match &mut self.lane_by[port] {
                _ if !packet.is_claimed() => FrameShard::Fragment,
                LaneBy::Key(classifier) => classifier.classify(packet.bytes()),
                LaneBy::Application => FrameShard::Shard(shard(packet)),
                LaneBy::Arrival => FrameShard::None, // unreachable
            };
            let destination = match frame_shard {
                FrameShard::Shard(shard) => self.destination(shard),
                FrameShard::None if self.has_application => Destination::Here,
                FrameShard::None => self.destination(0),
                FrameShard::Fragment => {
                    packet.set_unclaimed();
                    Destination::Here
                }
            };
            all_stay &= destination == Destination::Here;
            self.destinations.push(destination); // at most as many as a burst has
        }
        all_stay
    }

    fn send_away(&mut self, counters: &PortCounters, burst: &mut Burst, pool: &mut Pool) -> u64 {
        let buffered = self.send_runs(counters, burst.packets(), pool);
        burst.remove_taken();
        buffered
    }

    #[inline]
    fn next_burst(
        &mut self,
        counters: &[PortCounters],
        burst: &mut Burst,
        pool: &mut Pool,
    ) -> Option<usize> {
        if self.polls_buffer {
            if self.buffer.may_release() {
                self.release_buffered(counters, burst, pool);
                if !burst.is_empty() {
                    return Some(0);
                }
            }
            self.polls_buffer = false;
        }
        while let Some(ring) = self.rings.get_mut(self.next_lane) {
            let lane = self.next_lane;
            self.next_lane += 1;
            if let Some(ring) = ring {
                ring.receive(burst, pool);
                if !burst.is_empty() {
                    return Some(lane);
                }
            }
        }
        None
    }

    fn hand_over(&mut self, to: usize, run: &mut [Packet], pool: &mut Pool) -> Option<Sent> {
        let carrier = (*self.carriers.get(to)?)?;
        run.iter_mut().for_each(|packet| packet.set_labelled(true));
        Some(pass(self.rings.get_mut(carrier)?.as_mut(), run, pool))
    }

    fn hands_over(&self, to: usize) -> bool {
        self.carriers.get(to).is_some_and(Option::is_some)
    }

    #[inline]
    fn flush(&mut self, pool: &mut Pool) -> bool {
        let mut has_published = false;
        for ring in self.rings.iter_mut().flatten() {
            has_published |= ring.publish();
        }
        if has_published {
            // One for all rings of a turn: it costs more than the looks at the doorbells.
            fence(Ordering::SeqCst);
            for ring in self.rings.iter_mut().flatten() {
                ring.wake();
            }
        }
        let mut pending = !self.buffer.is_empty();
        for ring in self.rings.iter_mut().flatten() {
            pending |= ring.reclaim(pool);
        }
        if !self.is_acknowledged {
            pending |= !self.acknowledge();
        }
        pending
    }

    fn arm(&mut self) -> bool {
        let arrived = self.rings.iter_mut().flatten().fold(false, |arrived, ring| {
            ring.arm() | arrived // every ring must be armed
        });
        arrived || self.shards.epoch() != self.epoch
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.rings.iter().flatten().find_map(|ring| ring.interrupt())
    }

    /// Publishes the share of the busiest shard in the packets that were assigned since the last
    /// call, in thousandths. The last value stays if there were none.
    fn publish(&mut self, counters: &LaneCounters) {
        if let Some(share) = self.shards.busiest() {
            counters.publish(LaneCounter::BusiestShard, share);
        }
    }

    fn leave(&mut self, done: bool) {
        self.is_acknowledged = true;
        self.shards.leave(done);
    }

    fn is_busy(&mut self, done: bool) -> bool {
        let lanes = 0..self.rings.len();
        let mut peers = lanes.filter(|lane| self.rings[*lane].is_some());
        let others = peers.any(|lane| !self.shards.has_left(lane, done));
        let mut rings = self.rings.iter_mut().flatten();
        others
            || rings.any(|ring| {
                ring.mark();
                !ring.has_reached_mark() || ring.is_lending()
            })
    }

    fn close(&mut self, counters: &[PortCounters], pool: &mut Pool) -> usize {
        let count = |counter| {
            move |port: PortId| {
                if let Some(counters) = counters.get(usize::from(port.0)) {
                    counters.add(counter, 1);
                }
            }
        };
        for ring in self.rings.iter_mut().flatten() {
            ring.close(pool, &mut count(PortCounter::DropPassFull));
        }
        self.buffer.close(count(PortCounter::DropPark))
    }
}

/// Passes a run by a ring; without a ring no packet is taken.
fn pass(ring: Option<&mut Box<dyn LaneRing>>, run: &mut [Packet], pool: &mut Pool) -> Sent {
    let Some(ring) = ring else { return Sent::default() };
    let sent = ring.pass(run, pool);
    // A ring that reports more packets than the run has must not end the lane.
    let taken = sent.taken.min(run.len());
    Sent { taken, packets: sent.packets.min(taken), bytes: sent.bytes }
}

#[inline]
fn count_up(counters: &PortCounters, counter: PortCounter, packets: usize) {
    if packets > 0 {
        counters.add(counter, packets as u64);
    }
}

/// Counts the result of passing `count` packets of a port.
fn count_passed(counters: &PortCounters, passed: Sent, count: usize) {
    count_up(counters, PortCounter::PassedPackets, passed.packets);
    count_up(counters, PortCounter::DropTransmitLength, passed.taken - passed.packets);
    count_up(counters, PortCounter::DropPassFull, count - passed.taken);
}
