//! Messages between a lane and the slow path.

use std::os::fd::{AsFd, BorrowedFd};

use fastlane_table::counters::{LaneCounter, LaneCounters};
use fastlane_table::journal::Inconsistent;
use fastlane_table::messages::{Channel, Message, PUNT, Punted};

use crate::Packet;

/// The most messages that a lane receives in a turn: a slow path that sends faster than the
/// application reads must not keep the lane from its packets.
pub(crate) const MOST: u32 = 256;

/// The lane's side of its messages; see [`fastlane_table::messages`] for what lies in the memory
/// and for the other side.
#[derive(Debug)]
pub struct Messages {
    channel: Channel,
    lane: u16,
    punted: usize,
    /// The turn that received last, and how many more it may.
    turn: u64,
    left: u32,
}

impl Messages {
    /// The messages of the lane with this number.
    #[must_use]
    pub fn new(channel: Channel, lane: u16) -> Self {
        let punted = channel.sender.max_body() - Punted::HEADER;
        Self { channel, lane, punted, turn: 0, left: 0 }
    }

    /// Shows the slow path what was sent in this turn.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.channel.sender.publish();
    }

    /// What becomes readable when the slow path has sent something to a lane that waits.
    pub(crate) fn interrupt(&self) -> BorrowedFd<'_> {
        self.channel.receiver.doorbell().as_fd()
    }

    /// The lane is about to wait for the interrupt; false when a message came before.
    pub(crate) fn begin_wait(&mut self) -> bool {
        self.channel.receiver.begin_wait()
    }

    /// The lane no longer waits, if it did.
    pub(crate) fn end_wait(&mut self) {
        self.channel.receiver.end_wait();
    }

    pub(crate) fn send(&mut self, kind: u32, body: &[u8]) -> bool {
        self.channel.sender.send(kind, body)
    }

    pub(crate) fn punt(&mut self, packet: &Packet, reason: u32, time: u64) -> bool {
        let bytes = &packet.bytes()[..packet.len().min(self.punted)];
        let partial = packet.partial_checksum();
        let punted = Punted {
            time,
            length: packet.len() as u32,
            reason,
            port: packet.port().0,
            lane: self.lane,
            is_from_kernel: packet.is_from_kernel(),
            partial_checksum: partial.map(|partial| (partial.start, partial.offset)),
            bytes,
        };
        self.channel.sender.send_with_header(PUNT, &punted.header(), bytes)
    }

    /// The next message, in the turn of this number; `None` also when the turn has had its share.
    #[inline]
    pub(crate) fn receive(&mut self, turn: u64, counters: &LaneCounters) -> Option<Message<'_>> {
        if self.turn != turn {
            (self.turn, self.left) = (turn, MOST);
        }
        self.left = self.left.checked_sub(1)?;
        match self.channel.receiver.receive() {
            Ok(message) => message,
            Err(Inconsistent) => {
                counters.add(LaneCounter::MessagesRefused, 1);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
