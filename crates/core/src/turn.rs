//! What an application can ask of its lane.
#![allow(unsafe_code, reason = "a turn answers for its guard")]

use std::cell::Cell;

use fastlane_table::Guard;
use fastlane_table::counters::{LaneCounter, LaneCounters};
use rustix::time::{ClockId, clock_gettime};

use crate::exchange::Shards;
use crate::hold::Hold;
use crate::messages::Messages;
use crate::timers::Timers;
use crate::{Burst, HoldLimits, Packet, PacketOwnership, Pool, PortId, Verdict};

mod hold;
mod messages;

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in every process of the machine.
#[inline]
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One turn of a lane: its time, its timers, packets of the application's own, messages, and the
/// proof that tables can be read: what is found in them is lent until the application returns.
#[derive(Debug)]
pub struct Turn {
    pub(crate) pool: Pool,
    pub(crate) outbox: Burst,
    pub(crate) counters: LaneCounters,
    pub(crate) messages: Option<Messages>,
    pub(crate) hold: Hold,
    /// Whose each shard is, and this lane's number, where packets change lanes.
    pub(crate) shards: Option<(Shards, usize)>,
    timers: Timers,
    guard: Guard,
    /// 0 until it is read.
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
        hold: HoldLimits,
    ) -> Self {
        let outbox = Burst::new(outbox);
        let hold = Hold::new(hold, pool.frame_size());
        let timers = Timers::new();
        // SAFETY: the turn is the only way to its guard. A lane publishes its turn number, sleeps
        // and ends by methods that borrow all of it, its turn included, for themselves, so not
        // while the application, or what it has found, borrows the turn.
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

    #[inline]
    pub(crate) fn begin(&mut self) {
        self.now.set(0);
        self.number += 1;
        self.awake = false;
        self.pool.set_mixed(false);
    }

    /// Another burst is about to be shown.
    #[inline]
    pub(crate) fn begin_burst(&mut self) {
        self.burst += 1;
    }

    /// Publishes what the turn has sent and what is held.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.publish();
        }
        if self.hold.has_changed() {
            self.counters.publish(LaneCounter::HeldPackets, self.hold.len() as u64);
        }
    }

    /// Drops what is still held when the lane ends.
    pub(crate) fn drop_held(&mut self) {
        self.counters.add(LaneCounter::DropHeldAtEnd, self.hold.drop_all() as u64);
        self.end_turn();
    }

    /// The time of this turn, in nanoseconds of `CLOCK_MONOTONIC`. The clock is read once a turn,
    /// when it is first asked for (about 25 ns): all packets of the turn get the same time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.now.get() == 0 {
            self.now.set(now());
        }
        self.now.get()
    }

    /// Whether packets of a shard are shown to this lane ([`App::shard`](crate::App::shard)), as
    /// far as is known now: while a shard moves, another may get them soon. A lane that is alone
    /// owns all.
    #[must_use]
    pub fn owns(&self, shard: u8) -> bool {
        self.shards.as_ref().is_none_or(|(shards, lane)| shards.owner(shard) == *lane)
    }

    /// The number of this turn; the first is 1.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the burst that packets were last shown of. One burst may be shown in several
    /// parts, each by a call of [`App::process`](crate::App::process) of its own; the labels of all
    /// are carried out together, after the last one.
    #[inline]
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// A new, empty packet, already labelled `Forward(port)`; it leaves in this turn. `None`, which
    /// is counted, when the pool has no frame or the turn has made its share (a burst size)
    /// already.
    #[inline]
    #[must_use]
    pub fn new_packet(&mut self, port: PortId) -> Option<&mut Packet> {
        self.originate(port, 0, Verdict::Forward(port))
    }

    /// A copy of a packet, with its port, a partial checksum, and the label `Drop` until it gets
    /// another; refused as in [`new_packet`](Self::new_packet), also when it does not fit a frame.
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
            self.pool.release(&mut packet); // not reached: `make` found room
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

    /// How many packets this turn can still make, if the pool has the frames.
    #[inline]
    #[must_use]
    pub fn new_packets_left(&self) -> usize {
        self.outbox.room().min(self.pool.free())
    }

    /// Starts a timer: `key` comes out of [`expired`](Self::expired) in the first turn that begins
    /// `after` nanoseconds from now or later; never in this one. False, which is counted, when
    /// 65,536 are pending.
    #[must_use]
    pub fn start_timer(&mut self, after: u64, key: u64) -> bool {
        // At least one later, or an application that restarts each expired timer with 0 would never
        // leave this turn.
        let started = self.timers.start(self.now().saturating_add(after.max(1)), key);
        if !started {
            self.counters.add(LaneCounter::TimersRefused, 1);
        }
        started
    }

    /// The key of the next timer that has expired, to be asked for in
    /// [`App::turn`](crate::App::turn).
    #[must_use]
    pub fn expired(&mut self) -> Option<u64> {
        if self.timers.is_empty() {
            return None;
        }
        self.timers.expired(self.now())
    }

    /// Keeps the lane from sleeping after this turn: the application has work of its own to do
    /// soon.
    #[inline]
    pub fn keep_awake(&mut self) {
        self.awake = true;
    }

    /// Ends the whole application: after this turn all lanes send what they hold, and stop.
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
