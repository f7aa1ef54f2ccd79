//! Resumption of held packets.

use fastlane_table::counters::LaneCounter;

use super::Lane;
use crate::App;
use crate::hold::Resume;

/// Number of flushes, to get frames back, before the lane drops resumed packets.
const ATTEMPTS: usize = 64;

impl<A: App> Lane<A> {
    /// Shows packets that the application has resumed since the last call. Returns their number.
    #[inline]
    pub(super) fn resume(&mut self) -> usize {
        if self.turn.hold.has_requests() { self.show_resumed() } else { 0 }
    }

    #[cold]
    fn show_resumed(&mut self) -> usize {
        let (mut shown, mut attempts) = (0, 0);
        self.turn.hold.begin_round();
        loop {
            match self.turn.hold.next_burst(&mut self.resumed, &mut self.turn.pool) {
                Resume::Done => return shown,
                Resume::NoFrame if attempts < ATTEMPTS => {
                    attempts += 1;
                    self.flush();
                }
                Resume::NoFrame => {
                    let dropped = self.turn.hold.drop_next() as u64;
                    self.turn.counters.add(LaneCounter::DropResumeNoFrame, dropped);
                }
                Resume::Burst(queue) => {
                    attempts = 0;
                    shown += self.resumed.len();
                    let count = self.resumed.len() as u64;
                    self.turn.counters.add(LaneCounter::ResumedPackets, count);
                    self.turn.begin_burst();
                    self.app.process(self.resumed.packets(), &mut self.turn);
                    let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
                    self.egress.dispatch(queue, &mut self.resumed, pool, hold);
                }
            }
        }
    }
}
