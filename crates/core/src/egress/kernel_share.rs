//! Share of a turn's budget that packets for Linux get while a queue is congested.
//!
//! A packet for Linux costs as much as many that the lane forwards. When the room for arrivals is
//! used up the device drops packets, whoever they are for. So the share is halved with each turn in
//! which the congestion of a queue rises, stays while it falls, and grows by one with each other
//! turn. If all packets are for Linux there is nobody to protect, and the share is the budget.

use crate::Congestion;

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
    /// Greatest congestion of a queue in this turn.
    congestion: Congestion,
}

impl KernelShare {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget,
            share: budget,
            alone: ALONE_TURNS,
            received: 0,
            for_linux: 0,
            congestion: Congestion::None,
        }
    }

    /// Returns the number of packets for Linux in the turn that begins.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        let has_others = self.received > self.for_linux;
        self.alone = if has_others { 0 } else { self.alone.saturating_add(1) };
        let congestion = std::mem::take(&mut self.congestion);
        match congestion {
            Congestion::Rising if self.alone < ALONE_TURNS => {
                self.share = (self.share / 2).max(1);
            }
            Congestion::Falling if self.alone < ALONE_TURNS => {}
            _ => self.share = self.budget.min(self.share + 1),
        }
        (self.received, self.for_linux) = (0, 0);
        self.share
    }

    #[inline]
    pub(super) fn note_arrivals(&mut self, count: usize, congestion: Congestion) {
        self.received += count;
        self.congestion = self.congestion.max(congestion);
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
        congestion: Congestion,
    ) -> usize {
        let [received, for_linux] = packets;
        for _ in 0..count {
            share.note_arrivals(received, congestion);
            share.note_for_linux(for_linux);
            share.next();
        }
        share.share
    }

    #[test]
    fn it_is_halved_while_congestion_rises_and_grows_by_one_without_any() {
        let mut share = KernelShare::new(32);
        assert_eq!(turns(&mut share, 100, [32, 31], Congestion::None), 32);
        assert_eq!(turns(&mut share, 1, [32, 31], Congestion::Rising), 16);
        assert_eq!(turns(&mut share, 1, [32, 32], Congestion::Rising), 8);
        assert_eq!(turns(&mut share, 9, [32, 32], Congestion::Falling), 8);
        assert_eq!(turns(&mut share, 3, [5, 5], Congestion::None), 11);
        assert_eq!(turns(&mut share, 10, [32, 31], Congestion::Rising), 1);
        assert_eq!(turns(&mut share, 100, [0, 0], Congestion::None), 32);
    }

    #[test]
    fn without_packets_of_others_it_is_the_budget() {
        let mut share = KernelShare::new(8);
        let rising = Congestion::Rising;
        assert_eq!(turns(&mut share, 10, [32, 32], rising), 8, "there never were any");
        assert_eq!(turns(&mut share, 1, [32, 31], rising), 4);
        assert_eq!(turns(&mut share, ALONE_TURNS - 1, [32, 32], rising), 1);
        assert_eq!(turns(&mut share, 7, [32, 32], rising), 8, "there are none any more");
    }
}
