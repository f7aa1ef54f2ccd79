//! Share of a turn's budget that packets for Linux get while a queue is congested.
//!
//! A packet for Linux costs as much as many that the lane forwards. When the room for arrivals is
//! used up the device drops packets, whoever they are for. So the share is halved with each turn in
//! which a queue is congested, and grows by one with each other turn. If all packets are for Linux
//! there is nobody to protect, and the share is the budget.

/// Number of turns without packets of others after which there is nobody to protect.
const ALONE_TURNS: u32 = 4096;

/// Number of packets that Linux gets per turn.
#[derive(Debug)]
pub(super) struct KernelShare {
    budget: usize,
    share: usize,
    /// Number of turns since the last one with a packet that was not for Linux.
    alone: u32,
    /// Packets of this turn: those that were received, and those for Linux.
    received: usize,
    for_linux: usize,
    /// True if a queue was congested in this turn.
    is_congested: bool,
}

impl KernelShare {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget,
            share: budget,
            alone: ALONE_TURNS,
            received: 0,
            for_linux: 0,
            is_congested: false,
        }
    }

    /// Returns the number of packets for Linux in the turn that begins.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        let has_others = self.received > self.for_linux;
        self.alone = if has_others { 0 } else { self.alone.saturating_add(1) };
        self.share = match self.is_congested && self.alone < ALONE_TURNS {
            true => (self.share / 2).max(1),
            false => self.budget.min(self.share + 1),
        };
        (self.received, self.for_linux, self.is_congested) = (0, 0, false);
        self.share
    }

    #[inline]
    pub(super) fn note_arrivals(&mut self, count: usize, is_congested: bool) {
        self.received += count;
        self.is_congested |= is_congested;
    }

    #[inline]
    pub(super) fn note_for_linux(&mut self, count: usize) {
        self.for_linux += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends turns with a number of packets, some of which are for Linux. Returns the next share.
    fn turns(
        share: &mut KernelShare,
        count: u32,
        packets: [usize; 2],
        is_congested: bool,
    ) -> usize {
        let [received, for_linux] = packets;
        for _ in 0..count {
            share.note_arrivals(received, is_congested);
            share.note_for_linux(for_linux);
            share.next();
        }
        share.share
    }

    #[test]
    fn it_is_halved_while_a_queue_is_congested_and_grows_by_one_with_each_other_turn() {
        let mut share = KernelShare::new(32);
        assert_eq!(turns(&mut share, 100, [32, 31], false), 32, "full bursts alone are no reason");
        assert_eq!(turns(&mut share, 1, [32, 31], true), 16);
        assert_eq!(turns(&mut share, 1, [32, 32], true), 8);
        assert_eq!(turns(&mut share, 3, [5, 5], false), 11);
        assert_eq!(turns(&mut share, 10, [32, 31], true), 1);
        assert_eq!(turns(&mut share, 100, [0, 0], false), 32);
    }

    #[test]
    fn without_packets_of_others_it_is_the_budget() {
        let mut share = KernelShare::new(8);
        assert_eq!(turns(&mut share, 10, [32, 32], true), 8, "there never were any");
        assert_eq!(turns(&mut share, 1, [32, 31], true), 4);
        assert_eq!(turns(&mut share, ALONE_TURNS - 1, [32, 32], true), 1);
        assert_eq!(turns(&mut share, 7, [32, 32], true), 8, "there are none any more");
    }
}
