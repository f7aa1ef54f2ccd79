//! Messages of a turn.

use fastlane_table::counters::LaneCounter;
use fastlane_table::messages::Message;
use zerocopy::{Immutable, IntoBytes};

use crate::messages::Messages;
use crate::{Packet, Turn};

impl Turn {
    /// Sends a message to the slow path; it leaves with this turn. False, which is counted, when
    /// there is no room for it, when it is longer than
    /// [`MAX_BODY`](fastlane_table::messages::MAX_BODY), or when nobody listens at all. What must
    /// not be lost belongs into lane state.
    pub fn send(&mut self, kind: u32, body: &[u8]) -> bool {
        let sent = self.messages.as_mut().is_some_and(|messages| messages.send(kind, body));
        self.count_sent(sent)
    }

    /// As [`send`](Self::send): a message with the bytes of `value`.
    pub fn send_value<M: IntoBytes + Immutable + ?Sized>(&mut self, kind: u32, value: &M) -> bool {
        self.send(kind, value.as_bytes())
    }

    /// Shows a packet, as it is now, to the slow path, with where and when it came and the reason
    /// that the application gives: a message of the kind
    /// [`PUNT`](fastlane_table::messages::PUNT), else as [`send`](Self::send). What the lane does
    /// with the packet is for its label to say.
    pub fn punt(&mut self, packet: &Packet, reason: u32) -> bool {
        let time = self.now();
        let punt = |messages: &mut Messages| messages.punt(packet, reason, time);
        let sent = self.messages.as_mut().is_some_and(punt);
        self.count_sent(sent)
    }

    /// The next message from the slow path, in the lane's memory; `None` when there is none. Best
    /// asked for in [`App::turn`](crate::App::turn), until there is none. A turn has at most 256:
    /// what is left comes in the next one, which follows at once.
    #[must_use]
    pub fn receive(&mut self) -> Option<Message<'_>> {
        let message = self.messages.as_mut()?.receive(self.number, &self.counters)?;
        self.counters.add(LaneCounter::MessagesReceived, 1);
        self.awake = true; // there may be more
        Some(message)
    }

    fn count_sent(&mut self, sent: bool) -> bool {
        let counter = if sent { LaneCounter::MessagesSent } else { LaneCounter::MessagesLost };
        self.counters.add(counter, 1);
        sent
    }
}
