//! Held packets in a turn.

use fastlane_table::counters::LaneCounter;

use crate::{HoldKey, Turn};

impl Turn {
    /// Shows all packets that are held under a key to [`process`](crate::App::process) again, as
    /// they were received, with the application's changes. Returns their number.
    ///
    /// The lane shows them in this turn, as soon as the calling function has returned, and before
    /// it carries out the verdicts of that call. So they stay ahead of later packets of their key.
    /// Several keys are shown in the order of these calls, the packets of each in the order in
    /// which they were held.
    ///
    /// A packet that is held again goes to the end of its key, and the same call does not show it
    /// again. If it is resumed again while the lane shows packets, it comes with the next burst or
    /// in the next turn.
    ///
    /// A packet for which no frame is free is dropped and counted, after the lane has tried to send
    /// everything that waits.
    pub fn resume(&mut self, key: HoldKey) -> usize {
        self.hold.request(key)
    }

    /// Drops all packets that are held under a key. Returns their number, which is counted.
    pub fn discard(&mut self, key: HoldKey) -> usize {
        let discarded = self.hold.discard(key);
        self.counters.add(LaneCounter::DiscardedPackets, discarded as u64);
        discarded
    }

    /// Returns the number of packets that are held under a key, without those that the application
    /// has labelled in this call.
    #[must_use]
    pub fn held(&self, key: HoldKey) -> usize {
        self.hold.count(key)
    }

    /// Returns the number of packets that are held under all keys, without those that the
    /// application has labelled in this call.
    #[must_use]
    pub fn held_packets(&self) -> usize {
        self.hold.packets()
    }
}
