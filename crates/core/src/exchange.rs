//! One key, one lane: packets change lanes before the application sees them.
//!
//! Where packets of one key arrive in several lanes, each has its *shard*, one of 256, and each
//! shard its lane. Between `receive` and `process` a lane shows its own packets to its application
//! and passes the others on, by a ring to each other lane; what it gets by those rings it shows
//! whatever its key is, so a packet is passed at most once. The order of packets that arrive by one
//! queue and have one key is kept.
//!
//! *Master-worker* is the same with two kinds of lanes. Some have the ports and no application: all
//! they receive they pass on. The workers have the application and no ports: they pass labelled
//! packets back, to the lane that has the port in question, which carries the verdict out.
//!
//! A shard moves to another lane while traffic flows ([`ShardMigration`]): its packets are parked where they
//! arrive until its old lane has finished with all that it was passed.

use std::os::fd::BorrowedFd;

use fastlane_table::counters::{LaneCounter, LaneCounters, PortCounter};

use crate::{Burst, Filter, Packet, PacketOwnership, Pool, Port, PortId, Sent};

mod mover;
mod park;
mod shards;

pub use mover::{MoveError, ShardMigration};
pub use shards::{Shards, ShardsError};

use park::Park;
use shards::{LaneShards, Owner};

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

/// Which lane gets the packets of a port.
pub enum LaneBy {
    /// The one where they arrive.
    Arrival,
    /// The one of their key.
    Key(Box<dyn ShardClassifier>),
    /// The one of what the application says ([`App::shard`](crate::App::shard)).
    Application,
}

/// A lane's end of the way to and from one other lane, on which packets keep their port and their
/// verdict. Like a [`Queue`](crate::Queue), it neither allocates, locks nor fails once it is made.
pub trait LaneRing: Send {
    /// Appends packets that the other lane has passed, at most [`Burst::room`].
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool);

    /// Takes packets from the front of the slice, as many as there is space for; they are taken
    /// out. Those that no frame of the other lane can hold are taken and released. The other lane
    /// need not see any before [`flush`](Self::flush).
    fn pass(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent;

    /// Shows the other lane what was passed, wakes it should it sleep, and takes back what it has
    /// read. True when the lane should not sleep before more comes back.
    fn flush(&mut self, pool: &mut Pool) -> bool;

    /// The lane is about to sleep and is to be woken. True when it should not.
    fn arm(&mut self) -> bool;

    /// What becomes readable when the other lane has passed something; all passages of a lane have
    /// the same.
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;

    /// Remembers what the other lane has passed so far.
    fn mark(&mut self);

    /// Whether all of that was received.
    fn has_reached_mark(&self) -> bool;

    /// Whether the other lane has still to read what this one has passed.
    fn is_lending(&self) -> bool;

    /// Ends it; all frames return. `lost` gets the port of each packet that was not read.
    fn close(&mut self, pool: &mut Pool, lost: &mut dyn FnMut(PortId));
}

/// What a lane needs to change packets with others.
pub struct ExchangeConfig {
    /// This lane's number.
    pub lane: usize,
    /// The way to each other lane, by its number; `None` to itself and where there is none.
    pub rings: Vec<Option<Box<dyn LaneRing>>>,
    /// For each port, which lane gets what arrives there.
    pub lane_by: Vec<LaneBy>,
    /// For each port, the lane that carries out verdicts that this one cannot, because it has no
    /// queue of the port or no way into Linux. `None`: nobody does.
    pub carriers: Vec<Option<usize>>,
    /// Whether this lane has the application; else no packet is shown here.
    pub has_application: bool,
    /// Whose each shard is.
    pub shards: Shards,
    /// Where packets wait while their shard moves: frames of their own, so that those of the lane
    /// do not run out.
    pub migration_pool: Pool,
}

/// A lane's part in the exchange.
pub(crate) struct Exchange {
    has_application: bool,
    passages: Vec<Option<Box<dyn LaneRing>>>,
    lane_by: Vec<LaneBy>,
    carriers: Vec<Option<usize>>,
    shards: LaneShards,
    park: Park,
    /// Where each packet of the burst in hand goes.
    places: Vec<Place>,
    /// The epoch that this turn has seen, and whether the lane has said so.
    epoch: u64,
    is_acknowledged: bool,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Lane(u16),
    Parked(u8),
}

/// Stands for no filter on a port whose packets change lanes: there is one look for both.
struct Everything;

impl Filter for Everything {
    fn claims(&mut self, _: &[u8]) -> bool {
        true
    }

    fn claims_all(&self) -> bool {
        true
    }
}

impl Exchange {
    pub(crate) fn new(parts: ExchangeConfig, ports: &mut [Port], burst: usize) -> Self {
        let ExchangeConfig {
            lane,
            rings: passages,
            lane_by,
            carriers,
            has_application,
            shards,
            migration_pool: park,
        } = parts;
        for (port, lane_by) in ports.iter_mut().zip(&lane_by) {
            if !matches!(lane_by, LaneBy::Arrival) && port.filter.is_none() {
                port.filter = Some(Box::new(Everything));
            }
        }
        Self {
            has_application,
            passages,
            lane_by,
            carriers,
            shards: shards.lane(lane),
            park: Park::new(park),
            places: Vec::with_capacity(burst),
            epoch: 0,
            is_acknowledged: true,
        }
    }

    /// How many other lanes there may be a way to: their numbers are below that.
    pub(crate) fn lanes(&self) -> usize {
        self.passages.len()
    }

    /// At the start of a turn: looks whether shards move.
    #[inline]
    pub(crate) fn begin(&mut self) {
        let epoch = self.shards.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.is_acknowledged = false;
            self.passages.iter_mut().flatten().for_each(|passage| passage.mark());
            self.park.look_again();
        }
    }

    /// Gives the packets of a burst that steering has claimed their lanes; what of them is Linux's
    /// is claimed no more. True when all stay here; else they are to be
    /// [sent away](Self::send_away).
    pub(crate) fn assign(
        &mut self,
        number: usize,
        burst: &mut Burst,
        mut shard: impl FnMut(&Packet) -> u8,
    ) -> bool {
        if matches!(self.lane_by[number], LaneBy::Arrival) {
            return true;
        }
        self.places.clear();
        let mut stay = true;
        for packet in burst.packets() {
            let keyed = match &mut self.lane_by[number] {
                _ if !packet.is_claimed() => FrameShard::Fragment,
                LaneBy::Key(keys) => keys.classify(packet.bytes()),
                LaneBy::Application => FrameShard::Shard(shard(packet)),
                LaneBy::Arrival => FrameShard::None, // not reached
            };
            let place = match keyed {
                FrameShard::Shard(shard) => self.place(shard),
                FrameShard::None if self.has_application => Place::Here,
                FrameShard::None => self.place(0),
                FrameShard::Fragment => {
                    packet.set_unclaimed();
                    Place::Here
                }
            };
            stay &= place == Place::Here;
            self.places.push(place); // as many as the burst holds
        }
        stay
    }

    /// Sends the packets of a burst to the lanes that they were [assigned](Self::assign) to: what
    /// is left in it stays here. Returns how many wait for their shard.
    pub(crate) fn send_away(&mut self, port: &Port, burst: &mut Burst, pool: &mut Pool) -> u64 {
        let parked = self.send_to_places(port, burst.packets(), pool);
        burst.keep_framed();
        parked
    }

    /// Where the packets of a shard go.
    #[inline]
    fn place(&mut self, shard: u8) -> Place {
        self.shards.count(shard);
        // What is parked goes before what is newer.
        match self.shards.owner(shard) {
            _ if self.park.has(shard) => Place::Parked(shard),
            Owner::Here => Place::Here,
            Owner::Lane(lane) => Place::Lane(lane),
            Owner::Moving => Place::Parked(shard),
        }
    }

    fn send_to_places(&mut self, port: &Port, mut packets: &mut [Packet], pool: &mut Pool) -> u64 {
        let mut parked = 0;
        let mut places = &self.places[..];
        while let Some(place) = places.first().copied() {
            let count = places.iter().take_while(|other| **other == place).count();
            let (run, rest) = packets.split_at_mut(count);
            (packets, places) = (rest, &places[count..]);
            match place {
                Place::Here => {}
                Place::Parked(shard) => {
                    let kept = self.park.take_in(shard, run, pool);
                    parked += kept as u64;
                    count_up(port, PortCounter::DropPark, count - kept);
                }
                Place::Lane(lane) => {
                    let passage = self.passages.get_mut(usize::from(lane));
                    let passed = pass(passage.and_then(Option::as_mut), run, pool);
                    count_passed(port, passed, count);
                }
            }
            if place != Place::Here {
                run.iter_mut().for_each(|packet| pool.release(packet));
            }
        }
        parked
    }

    /// Appends what one other lane has passed.
    #[inline]
    pub(crate) fn receive(&mut self, lane: usize, burst: &mut Burst, pool: &mut Pool) {
        if let Some(passage) = &mut self.passages[lane] {
            passage.receive(burst, pool);
        }
    }

    /// Passes labelled packets to whoever has the port; `None` when nobody does.
    pub(crate) fn hand_over(
        &mut self,
        to: usize,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> Option<Sent> {
        let carrier = (*self.carriers.get(to)?)?;
        run.iter_mut().for_each(|packet| packet.set_labelled(true));
        Some(pass(self.passages.get_mut(carrier)?.as_mut(), run, pool))
    }

    /// Whether another lane carries out what is to leave by this port.
    pub(crate) fn hands_over(&self, to: usize) -> bool {
        self.carriers.get(to).is_some_and(Option::is_some)
    }

    /// Whether packets are parked that may go on now.
    #[inline]
    pub(crate) fn may_unpark(&self) -> bool {
        self.park.may_leave()
    }

    /// Lets packets go whose shard has its lane again: to the others' lanes, or into the burst as
    /// long as there is room.
    #[cold]
    pub(crate) fn unpark(&mut self, ports: &[Port], burst: &mut Burst, pool: &mut Pool) {
        let (shards, passages) = (&self.shards, &mut self.passages);
        self.park.leave(pool, |shard, packet, pool| {
            let port = usize::from(packet.port().0);
            match shards.owner(shard) {
                Owner::Moving => return park::Way::Stays,
                Owner::Here => match burst.push(packet.take()) {
                    Ok(()) => return park::Way::Left,
                    Err(back) => {
                        *packet = back;
                        return park::Way::Stays;
                    }
                },
                Owner::Lane(lane) => {
                    let passage = passages.get_mut(usize::from(lane)).and_then(Option::as_mut);
                    let passed = pass(passage, std::slice::from_mut(packet), pool);
                    if let Some(port) = ports.get(port) {
                        count_passed(port, passed, 1);
                    }
                }
            }
            park::Way::Left
        });
    }

    /// At the end of a turn: shows the others what was passed to them; true when the lane should
    /// not sleep. Says that the epoch was seen once all is done that came before it.
    #[inline]
    pub(crate) fn flush(&mut self, pool: &mut Pool) -> bool {
        let mut pending = !self.park.is_empty();
        for passage in self.passages.iter_mut().flatten() {
            pending |= passage.flush(pool);
        }
        if !self.is_acknowledged {
            pending |= !self.acknowledge();
        }
        pending
    }

    #[cold]
    fn acknowledge(&mut self) -> bool {
        let mut passages = self.passages.iter().flatten();
        self.is_acknowledged = passages.all(|passage| passage.has_reached_mark());
        if self.is_acknowledged {
            self.shards.acknowledge(self.epoch);
        }
        self.is_acknowledged
    }

    /// Tells all that the lane will sleep; true when it should not.
    pub(crate) fn arm(&mut self) -> bool {
        let arrived = self.passages.iter_mut().flatten().fold(false, |arrived, passage| {
            passage.arm() | arrived // every one is to be asked
        });
        arrived || self.shards.epoch() != self.epoch
    }

    pub(crate) fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.passages.iter().flatten().find_map(|passage| passage.interrupt())
    }

    /// The share of the busiest shard in what was given its lane here since it was asked last, in
    /// thousandths; the one before when nothing was.
    pub(crate) fn publish(&mut self, counters: &LaneCounters) {
        if let Some(share) = self.shards.busiest() {
            counters.publish(LaneCounter::BusiestShard, share);
        }
    }
}

/// Leaving in good order: what was passed is still shown and carried out.
impl Exchange {
    /// Says that the lane passes on nothing more that arrives at its ports, and once it is `done`
    /// nothing at all.
    pub(crate) fn leave(&mut self, done: bool) {
        self.is_acknowledged = true;
        self.shards.leave(done);
    }

    /// Whether something can still come from other lanes, or they have still to read something.
    pub(crate) fn is_busy(&mut self, done: bool) -> bool {
        let lanes = 0..self.passages.len();
        let mut peers = lanes.filter(|lane| self.passages[*lane].is_some());
        let others = peers.any(|lane| !self.shards.has_left(lane, done));
        let mut passages = self.passages.iter_mut().flatten();
        others
            || passages.any(|passage| {
                passage.mark();
                !passage.has_reached_mark() || passage.is_lending()
            })
    }

    /// Ends all; returns how many parked packets were lost.
    pub(crate) fn close(&mut self, ports: &[Port], pool: &mut Pool) -> usize {
        for passage in self.passages.iter_mut().flatten() {
            passage.close(pool, &mut |port| {
                if let Some(port) = ports.get(usize::from(port.0)) {
                    port.counters.add(PortCounter::DropPassFull, 1);
                }
            });
        }
        self.park.close(|port| {
            if let Some(port) = ports.get(usize::from(port.0)) {
                port.counters.add(PortCounter::DropPark, 1);
            }
        })
    }
}

fn pass(passage: Option<&mut Box<dyn LaneRing>>, run: &mut [Packet], pool: &mut Pool) -> Sent {
    let Some(passage) = passage else { return Sent::default() };
    let sent = passage.pass(run, pool);
    // A driver that says more than it was shown must not end the lane.
    let taken = sent.taken.min(run.len());
    Sent { taken, packets: sent.packets.min(taken), bytes: sent.bytes }
}

#[inline]
fn count_up(port: &Port, counter: PortCounter, packets: usize) {
    if packets > 0 {
        port.counters.add(counter, packets as u64);
    }
}

/// Of `count` packets of a port.
fn count_passed(port: &Port, passed: Sent, count: usize) {
    count_up(port, PortCounter::PassedPackets, passed.packets);
    count_up(port, PortCounter::DropTransmitLength, passed.taken - passed.packets);
    count_up(port, PortCounter::DropPassFull, count - passed.taken);
}
