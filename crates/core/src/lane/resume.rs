//! Showing the application again what it has held.

use fastlane_table::counters::LaneCounter;

use super::Lane;
use crate::App;
use crate::hold::Next;

/// How often a lane sends everything, to get frames back, before it gives up.
const ATTEMPTS: usize = 64;

impl<A: App> Lane<A> {
    /// Shows the packets that the application has resumed since this was called last; returns how
    /// many.
    #[inline]
    pub(super) fn resume(&mut self) -> usize {
        if self.turn.hold.has_requests() { self.show_again() } else { 0 }
    }

    #[cold]
    fn show_again(&mut self) -> usize {
        let (mut shown, mut attempts) = (0, 0);
        self.turn.hold.begin_round();
        loop {
            match self.turn.hold.take(&mut self.resumed, &mut self.turn.pool) {
                Next::Nothing => return shown,
                Next::NoFrame if attempts < ATTEMPTS => {
                    attempts += 1;
                    self.flush();
                }
                Next::NoFrame => {
                    let lost = self.turn.hold.lose() as u64;
                    self.turn.counters.add(LaneCounter::DropResumeNoFrame, lost);
                }
                Next::Burst(queue) => {
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
