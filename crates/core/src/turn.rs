//! Turns: the services of a lane for its application ([`Turn`]), and the application itself
//! ([`App`]), the packet code of an author.
#![allow(unsafe_code, reason = "a turn guarantees the conditions of its guard")]

use std::cell::Cell;

use fastlane_table::Guard;
use fastlane_table::counters::{LaneCounter, LaneCounters};
use rustix::time::{ClockId, clock_gettime};

use crate::exchange::ShardOwnership;
use crate::hold::Hold;
use crate::messages::Messages;
use crate::timers::Timers;
use crate::{Burst, HoldBuffer, Packet, PacketOwnership, Pool, PortId, Verdict};

mod holding;
mod messaging;

/// Network application. Each lane has an instance of its own, which no other thread uses.
///
/// Any `FnMut(&mut Packet) -> Verdict` is an application too.
///
/// # Examples
/// An application that drops short packets and counts them, and reflects all others:
/// ```
/// use fastlane_core::{App, Packet, Turn, Verdict};
///
/// #[derive(Default)]
/// struct LongOnly {
///     short: u64,
/// }
///
/// impl App for LongOnly {
///     fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
///         for packet in packets {
///             let is_short = packet.len() < 60;
///             self.short += u64::from(is_short);
///             packet.set_verdict(if is_short { Verdict::Drop } else { Verdict::Reflect });
///         }
///     }
/// }
/// # use fastlane_core::{Lane, LaneConfig, Pool, Port, PortId};
/// # use fastlane_local::memory::Memory;
/// # use fastlane_table::SharedMemory;
/// # use fastlane_table::counters::Counters;
/// # let counters = Counters::create(1, 1)?;
/// # let mut pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
/// # let queue = Memory::filled(PortId(0), &mut pool, 8, &[0; 20])?;
/// # let port = Port {
/// #     queues: vec![Box::new(queue)], kernel: None, filter: None, counters: counters.port(0, 0),
/// # };
/// # let config = LaneConfig::new(pool, vec![port], counters.lane(0));
/// # let mut lane = Lane::new(LongOnly::default(), config);
/// # lane.turn();
/// # assert_eq!((lane.app().short, lane.close()), (8, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait App {
    /// Labels the packets of a burst with [`set_verdict`](Packet::set_verdict). All of them have
    /// arrived at one port. They are labelled [`Verdict::Kernel`] at first.
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn);

    /// Returns the shard of a packet that has arrived at a port with `lane-by: application`. All
    /// packets of a shard are shown to the instance of one lane. The lane of arrival calls it, so
    /// the result must depend only on the packet and on tables, read in this `turn`.
    ///
    /// # Examples
    /// ```
    /// use fastlane_core::{App, Packet, Turn};
    ///
    /// struct ByLastOctet;
    ///
    /// impl App for ByLastOctet {
    ///     fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}
    ///
    ///     fn shard(&mut self, packet: &Packet, _: &Turn) -> u8 {
    ///         packet.bytes().get(33).copied().unwrap_or(0) // of the destination IPv4 address
    ///     }
    /// }
    /// ```
    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        let _ = (packet, turn);
        0
    }

    /// Runs once a turn, also without packets, for timers, messages and packets of the
    /// application's own.
    fn turn(&mut self, turn: &mut Turn) {
        let _ = turn;
    }
}

impl<F: FnMut(&mut Packet) -> Verdict> App for F {
    #[inline]
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let verdict = self(packet);
            packet.set_verdict(verdict);
        }
    }
}

/// One turn of a lane: one poll iteration, at whose end no reference into a table exists (a
/// quiescent state in the sense of RCU).
///
/// An application gets it in every call and uses it for the time, timers, packets of its own,
/// messages and held packets. It is also the guard with which tables are read: a value from a table
/// is borrowed as long as the turn is.
///
/// # Examples
/// An application that sends a packet every millisecond:
/// ```
/// use fastlane_core::{App, Packet, PortId, Turn};
///
/// struct Beacon {
///     frame: Vec<u8>,
/// }
///
/// impl App for Beacon {
///     fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}
///
///     fn turn(&mut self, turn: &mut Turn) {
///         let mut is_due = turn.number() == 1;
///         while turn.expired().is_some() {
///             is_due = true;
///         }
///         if is_due {
///             if let Some(packet) = turn.new_packet(PortId(0)) {
///                 if let Some(bytes) = packet.append(self.frame.len()) {
///                     bytes.copy_from_slice(&self.frame);
///                 }
///             }
///             let _ = turn.start_timer(1_000_000, 0); // fails with 65,536 pending timers
///         }
///     }
/// }
/// # use fastlane_core::{Lane, LaneConfig, Pool, Port};
/// # use fastlane_local::memory::Memory;
/// # use fastlane_table::SharedMemory;
/// # use fastlane_table::counters::{Counters, LaneCounter};
/// # let counters = Counters::create(1, 1)?;
/// # let pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
/// # let queue = Memory::new(PortId(0), 8);
/// # let port = Port {
/// #     queues: vec![Box::new(queue)], kernel: None, filter: None, counters: counters.port(0, 0),
/// # };
/// # let config = LaneConfig::new(pool, vec![port], counters.lane(0));
/// # let mut lane = Lane::new(Beacon { frame: vec![0; 60] }, config);
/// # lane.turn();
/// # assert_eq!(counters.lane(0).load(LaneCounter::NewPackets), 1);
/// # assert_eq!(lane.close(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Turn {
    pub(crate) pool: Pool,
    pub(crate) outbox: Burst,
    pub(crate) counters: LaneCounters,
    pub(crate) messages: Option<Messages>,
    pub(crate) hold: Hold,
    /// Shards of this lane, if packets change lanes.
    pub(crate) shards: Option<Box<dyn ShardOwnership>>,
    timers: Timers,
    guard: Guard,
    /// Time of the turn; 0 until the clock is read.
    now: Cell<u64>,
    number: u64,
    burst: u64,
    awake: bool,
    ended: bool,
}

impl Turn {
    pub(crate) fn new(
        pool: Pool,
        outbox: usize,
        counters: LaneCounters,
        messages: Option<Messages>,
        hold: Option<Box<dyn HoldBuffer>>,
    ) -> Self {
        let outbox = Burst::new(outbox);
        let hold = Hold::new(hold);
        let timers = Timers::new();
        // SAFETY: the guard is reachable only through the turn. A lane publishes its turn number,
        // sleeps and ends in methods that borrow all of it, with its turn, exclusively. So none of
        // these happens while the application or a value from a table borrows the turn.
        let guard = unsafe { Guard::new() };
        Self {
            pool,
            outbox,
            counters,
            messages,
            hold,
            shards: None,
            timers,
            guard,
            now: Cell::new(0),
            number: 0,
            burst: 0,
            awake: false,
            ended: false,
        }
    }

    /// Begins a turn.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.now.set(0);
        self.number += 1;
        self.awake = false;
        self.pool.set_mixed(false);
    }

    /// Begins a burst.
    #[inline]
    pub(crate) fn begin_burst(&mut self) {
        self.burst += 1;
    }

    /// Publishes the messages of the turn and the number of held packets.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.publish();
        }
        if self.hold.has_changed() {
            self.counters.publish(LaneCounter::HeldPackets, self.hold.packets() as u64);
        }
    }

    /// Drops all held packets, at the end of the lane.
    pub(crate) fn drop_held(&mut self) {
        self.counters.add(LaneCounter::DropHeldAtEnd, self.hold.discard_all() as u64);
        self.end_turn();
    }

    /// Returns the time of this turn, in nanoseconds of `CLOCK_MONOTONIC`. The first call of a turn
    /// reads the clock (about 25 ns); later calls return the same time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.now.get() == 0 {
            self.now.set(now());
        }
        self.now.get()
    }

    /// Returns true if packets of a shard are shown to this lane
    /// ([`App::shard`]). While a shard migrates, the result can change with the
    /// next turn. A lane without others owns all shards.
    #[must_use]
    pub fn owns(&self, shard: u8) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.owns(shard))
    }

    /// Returns the number of this turn. The first is 1.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of the current burst. A burst can be shown in several parts, each by its
    /// own call of [`App::process`]. The verdicts of all parts are carried out
    /// together, after the last one.
    #[inline]
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Creates an empty packet that is labelled `Forward(port)` and leaves in this turn. Returns
    /// `None`, which is counted, if the pool has no free frame or the turn has made as many packets
    /// as a burst has.
    #[inline]
    #[must_use]
    pub fn new_packet(&mut self, port: PortId) -> Option<&mut Packet> {
        self.originate(port, 0, Verdict::Forward(port))
    }

    /// Copies a packet with its port and partial checksum, labelled `Drop`. Returns `None` as
    /// [`new_packet`](Self::new_packet) does, and also if the packet does not fit a frame or has
    /// lost the start of its checksum.
    #[must_use]
    pub fn copy(&mut self, packet: &Packet) -> Option<&mut Packet> {
        if packet.has_lost_checksum() {
            self.counters.add(LaneCounter::NewRefused, 1);
            return None;
        }
        let copy = self.originate(packet.port(), packet.len(), Verdict::Drop)?;
        copy.bytes_mut().copy_from_slice(packet.bytes());
        copy.set_partial_checksum(packet.partial_checksum());
        Some(copy)
    }

    fn originate(&mut self, port: PortId, length: usize, verdict: Verdict) -> Option<&mut Packet> {
        let made = self.make(port, length);
        let counter =
            if made.is_some() { LaneCounter::NewPackets } else { LaneCounter::NewRefused };
        self.counters.add(counter, 1);
        let mut packet = made?;
        packet.set_verdict(verdict);
        self.awake = true;
        if let Err(mut packet) = self.outbox.push(packet) {
            self.pool.release(&mut packet); // unreachable: `make` found room
        }
        self.outbox.last()
    }

    fn make(&mut self, port: PortId, length: usize) -> Option<Packet> {
        if self.outbox.room() == 0 {
            return None;
        }
        self.pool.set_mixed(true);
        self.pool.alloc_packet(length, port)
    }

    /// Returns the number of packets that this turn can still make.
    #[inline]
    #[must_use]
    pub fn new_packets_left(&self) -> usize {
        self.outbox.room().min(self.pool.free())
    }

    /// Starts a timer. [`expired`](Self::expired) returns `key` in the first turn that begins at
    /// least `after` nanoseconds from now, and never in this turn. Returns false, which is counted,
    /// if 65,536 timers are pending.
    #[must_use]
    pub fn start_timer(&mut self, after: u64, key: u64) -> bool {
        // At least 1 ns, or an application that restarts each expired timer with 0 would never
        // leave this turn.
        let started = self.timers.start(self.now().saturating_add(after.max(1)), key);
        if !started {
            self.counters.add(LaneCounter::TimersRefused, 1);
        }
        started
    }

    /// Returns the key of the next timer that has expired, earliest first, for
    /// [`App::turn`].
    #[must_use]
    pub fn expired(&mut self) -> Option<u64> {
        if self.timers.is_empty() {
            return None;
        }
        self.timers.expired(self.now())
    }

    /// Keeps the lane from sleeping after this turn, because the application has work of its own.
    #[inline]
    pub fn keep_awake(&mut self) {
        self.awake = true;
    }

    /// Ends the whole application. After this turn all lanes send what they have and stop.
    pub fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    #[inline]
    pub(crate) fn is_awake(&self) -> bool {
        self.awake
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timers.next_deadline()
    }
}

impl AsRef<Guard> for Turn {
    #[inline]
    fn as_ref(&self) -> &Guard {
        &self.guard
    }
}

/// Reads `CLOCK_MONOTONIC`, in nanoseconds. All processes of the machine have the same clock.
#[inline]
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
