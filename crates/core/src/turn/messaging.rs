//! Messages in a turn.

use fastlane_table::counters::LaneCounter;
use fastlane_table::messages::Message;
use zerocopy::{Immutable, IntoBytes};

use crate::messages::Messages;
use crate::{Packet, Turn};

impl Turn {
    /// Sends a message to the slow path at the end of this turn. Returns false, which is counted,
    /// if the ring is full, the message is longer than
    /// [`MAX_BODY`](fastlane_table::messages::MAX_BODY) or messages are not configured. Information
    /// that must not be lost belongs in lane state.
    pub fn send(&mut self, kind: u32, body: &[u8]) -> bool {
        let sent = self.messages.as_mut().is_some_and(|messages| messages.send(kind, body));
        self.count_sent(sent)
    }

    /// Sends the bytes of `value` as a message, as [`send`](Self::send) does.
    pub fn send_value<M: IntoBytes + Immutable + ?Sized>(&mut self, kind: u32, value: &M) -> bool {
        self.send(kind, value.as_bytes())
    }

    /// Punts a copy of a packet to the slow path: a message of the kind
    /// [`PUNT`](fastlane_table::messages::PUNT) with the packet, its port, the time and `reason`.
    /// Returns false as [`send`](Self::send) does. The verdict still decides about the packet.
    pub fn punt(&mut self, packet: &Packet, reason: u32) -> bool {
        let time = self.now();
        let punt = |messages: &mut Messages| messages.punt(packet, reason, time);
        let sent = self.messages.as_mut().is_some_and(punt);
        self.count_sent(sent)
    }

    /// Returns the next message from the slow path, or `None` if there is none. Call it in
    /// [`App::turn`](crate::App::turn) until it returns `None`. A turn receives at most 256
    /// messages; the rest comes in the next turn, which follows at once.
    #[must_use]
    pub fn receive(&mut self) -> Option<Message<'_>> {
        let message = self.messages.as_mut()?.receive(self.number, &self.counters)?;
        self.counters.add(LaneCounter::MessagesReceived, 1);
        self.awake = true; // more messages can follow
        Some(message)
    }

    fn count_sent(&mut self, sent: bool) -> bool {
        let counter = if sent { LaneCounter::MessagesSent } else { LaneCounter::MessagesLost };
        self.counters.add(counter, 1);
        sent
    }
}
