//! Held packets in a turn.

use fastlane_table::counters::LaneCounter;

use crate::{HoldKey, Turn};

impl Turn {
    /// Shows all packets that are held under a key at this moment to
    /// [`process`](crate::App::process) again, as they were received, with what the application
    /// has written into them; returns how many. That happens in this turn, as soon as the function
    /// that calls this has returned, and before the packets that it has just labelled go anywhere:
    /// so they stay ahead of all of that key that came after them. Several keys are shown in the
    /// order in which they were resumed, the packets of each in the order in which they were held.
    ///
    /// A packet that is held again goes to the end, and is not shown again by the same call. One
    /// that is held again and resumed again while the lane shows packets again is shown in the next
    /// turn, or with the next burst.
    ///
    /// A packet for which no frame is free is lost and counted, after the lane has tried to send
    /// everything that waits.
    pub fn resume(&mut self, key: HoldKey) -> usize {
        self.hold.request(key.number())
    }

    /// Drops all packets that are held under a key; returns how many, which are counted.
    pub fn discard(&mut self, key: HoldKey) -> usize {
        let discarded = self.hold.discard(key.number());
        self.counters.add(LaneCounter::DiscardedPackets, discarded as u64);
        discarded
    }

    /// How many packets are held under a key. Those that were labelled since the application was
    /// called are not among them yet.
    #[must_use]
    pub fn held(&self, key: HoldKey) -> usize {
        self.hold.count(key.number())
    }

    /// How many packets are held under all keys; as with [`held`](Self::held).
    #[inline]
    #[must_use]
    pub fn held_packets(&self) -> usize {
        self.hold.len()
    }
}
