//! Messages between a lane and the slow path.

use std::os::fd::{AsFd, BorrowedFd};

use fastlane_table::counters::{LaneCounter, LaneCounters};
use fastlane_table::journal::Inconsistent;
use fastlane_table::messages::{Channel, Message, PUNT, Punted};

use crate::Packet;

/// Maximum number of messages that a lane receives in a turn: a slow path that sends faster than
/// the application reads must not keep the lane from its packets.
pub(crate) const MAX_RECEIVED: u32 = 256;

/// Messages between a lane and the slow path: the side of the lane. The rings and the other side
/// are in [`fastlane_table::messages`].
#[derive(Debug)]
pub struct Messages {
    channel: Channel,
    lane: u16,
    punted: usize,
    /// Turn that received last, and the number of messages that it may still receive.
    turn: u64,
    left: u32,
}

impl Messages {
    /// Creates the messages of the lane with this number.
    #[must_use]
    pub fn new(channel: Channel, lane: u16) -> Self {
        let punted = channel.sender.max_body() - Punted::HEADER;
        Self { channel, lane, punted, turn: 0, left: 0 }
    }

    /// Publishes the messages of this turn to the slow path.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.channel.sender.publish();
    }

    /// Returns the descriptor that becomes readable when the slow path has sent to a waiting lane.
    pub(crate) fn interrupt(&self) -> BorrowedFd<'_> {
        self.channel.receiver.doorbell().as_fd()
    }

    /// Announces that the lane is about to wait. Returns false if a message has arrived.
    pub(crate) fn begin_wait(&mut self) -> bool {
        self.channel.receiver.begin_wait()
    }

    /// Announces that the lane no longer waits.
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

    /// Returns the next message in the turn of this number, or `None` if there is none or the turn
    /// has received its maximum.
    #[inline]
    pub(crate) fn receive(&mut self, turn: u64, counters: &LaneCounters) -> Option<Message<'_>> {
        if self.turn != turn {
            (self.turn, self.left) = (turn, MAX_RECEIVED);
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
