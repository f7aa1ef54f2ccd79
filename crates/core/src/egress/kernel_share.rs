//! Share of a turn's budget that packets for Linux get while a queue is congested.
//!
//! A packet for Linux costs as much as many that the lane forwards. When the room for arrivals is
//! used up the device drops packets, whoever they are for. So the share is halved with each turn in
//! which the congestion of a queue rises, stays while it falls, and grows by one with each other
//! turn. It may be a fraction of a packet: Linux takes longer for some than a device for a burst.
//!
//! If all packets are for Linux there is nobody to protect, and the share is the budget, unless
//! Linux takes long for a packet. Others that come later would wait for all before them, if they
//! found room at all: 4,096 packets of 80 microseconds each are a third of a second.

use crate::Congestion;

/// Number of turns without packets of others after which there is nobody to protect.
const ALONE_TURNS: u32 = 4096;
/// Time that Linux takes for a packet, beyond which it takes long, in nanoseconds. A segment of TCP
/// for the host itself takes a few microseconds.
const LONG: u64 = 10_000;
/// Number of times in a row after which that is no accident: another thread on the lane's CPU makes
/// single ones long.
const LONG_TIMES: u32 = 32;
/// Parts of a packet, of which the least share is one.
const PARTS: usize = 64;

/// Number of packets that Linux gets per turn.
#[derive(Debug)]
pub(super) struct KernelShare {
    /// In parts of a packet, as are the next two.
    budget: usize,
    share: usize,
    /// Less than a packet: what earlier turns have left.
    rest: usize,
    /// Number of turns since the last one with a packet that was not for Linux.
    alone: u32,
    /// Number of times in a row that Linux has taken long while a queue was congested.
    long: u32,
    /// Packets of this turn: those that were received, and those for Linux.
    received: usize,
    for_linux: usize,
    /// Greatest congestion of a queue in this turn.
    congestion: Congestion,
    /// True if nothing changes until there is congestion.
    is_calm: bool,
}

impl KernelShare {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget: budget * PARTS,
            share: budget * PARTS,
            rest: 0,
            alone: ALONE_TURNS,
            long: 0,
            received: 0,
            for_linux: 0,
            congestion: Congestion::None,
            is_calm: true,
        }
    }

    /// Returns the number of packets for Linux in the turn that begins.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        let has_others = self.received > self.for_linux;
        self.alone = if has_others { 0 } else { self.alone.saturating_add(1) };
        (self.received, self.for_linux) = (0, 0);
        let congestion = std::mem::take(&mut self.congestion);
        if self.is_calm && congestion == Congestion::None {
            return self.budget / PARTS;
        }
        let protects = self.alone < ALONE_TURNS || self.long >= LONG_TIMES;
        match congestion {
            Congestion::Rising if protects => self.share = (self.share / 2).max(1),
            Congestion::Falling if protects => {}
            _ => self.share = self.budget.min(self.share + PARTS),
        }
        let parts = self.budget.min(self.share + self.rest);
        self.rest = parts % PARTS;
        self.is_calm = self.share == self.budget;
        parts / PARTS
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

    /// Returns true if a queue is congested in this turn: then the time that Linux takes matters.
    #[inline]
    pub(super) fn is_congested(&self) -> bool {
        self.congestion != Congestion::None
    }

    /// Notes the time that Linux has taken for some packets, in nanoseconds.
    pub(super) fn note_time(&mut self, time: u64, count: usize) {
        let is_long = time > LONG * count as u64;
        self.long = if is_long { self.long.saturating_add(1) } else { 0 };
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
        share.share / PARTS
    }

    #[test]
    fn it_is_halved_while_congestion_rises_and_grows_by_one_without_any() {
        let mut share = KernelShare::new(32);
        assert_eq!(turns(&mut share, 100, [32, 31], Congestion::None), 32);
        assert_eq!(turns(&mut share, 1, [32, 31], Congestion::Rising), 16);
        assert_eq!(turns(&mut share, 1, [32, 32], Congestion::Rising), 8);
        assert_eq!(turns(&mut share, 9, [32, 32], Congestion::Falling), 8);
        assert_eq!(turns(&mut share, 3, [5, 5], Congestion::None), 11);
        assert_eq!(turns(&mut share, 3, [32, 31], Congestion::Rising), 1);
        assert_eq!(turns(&mut share, 100, [0, 0], Congestion::None), 32);
    }

    #[test]
    fn a_fraction_is_a_packet_in_several_turns() {
        let packets_of = |share: &mut KernelShare, congestion| -> usize {
            let mut turn = || {
                share.note_arrivals(32, congestion);
                share.note_for_linux(31);
                share.next()
            };
            (0..2 * PARTS).map(|_| turn()).sum()
        };
        let mut share = KernelShare::new(32);
        turns(&mut share, 7, [32, 31], Congestion::Rising);
        assert_eq!(packets_of(&mut share, Congestion::Falling), PARTS / 2, "one in four turns");
        turns(&mut share, 100, [32, 31], Congestion::Rising);
        assert_eq!(packets_of(&mut share, Congestion::Falling), 2, "never none at all");
    }

    #[test]
    fn without_packets_of_others_it_is_the_budget_unless_linux_takes_long() {
        let mut share = KernelShare::new(8);
        let rising = Congestion::Rising;
        assert_eq!(turns(&mut share, 10, [32, 32], rising), 8, "there never were any");
        assert_eq!(turns(&mut share, 1, [32, 31], rising), 4);
        assert_eq!(turns(&mut share, ALONE_TURNS - 1, [32, 32], rising), 0);
        assert_eq!(turns(&mut share, 8, [32, 32], rising), 8, "there are none any more");
        (1..LONG_TIMES).for_each(|_| share.note_time(8 * 11_000, 8));
        assert_eq!(turns(&mut share, 1, [32, 32], rising), 8, "it may be an accident");
        share.note_time(8 * 11_000, 8);
        assert_eq!(turns(&mut share, 1, [32, 32], rising), 4);
        share.note_time(8 * 2_000, 8);
        assert_eq!(turns(&mut share, 4, [32, 32], rising), 8);
    }
}
