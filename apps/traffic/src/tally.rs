//! Packet and byte counts with the time span that they cover.

/// Count of packets in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, without frame check sequences.
    pub bytes: u64,
    /// Time of the first burst in nanoseconds of `CLOCK_MONOTONIC`; 0 if no packet was counted.
    pub first: u64,
    /// Time of the last burst in nanoseconds of `CLOCK_MONOTONIC`.
    pub last: u64,
    /// Packets and bytes counted at `first`. They start the time span and are not in the rate.
    opening: (u64, u64),
}

impl Tally {
    /// Counts a packet.
    #[inline]
    pub fn add(&mut self, bytes: usize, now: u64) {
        if self.packets == 0 {
            self.first = now;
        }
        self.packets += 1;
        self.bytes += bytes as u64;
        self.last = now;
        if now == self.first {
            self.opening = (self.packets, self.bytes);
        }
    }

    /// Returns the combined count of two lanes that ran at the same time.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        if self.packets == 0 || other.packets == 0 {
            return if self.packets == 0 { other } else { self };
        }
        let opening = match self.first.cmp(&other.first) {
            std::cmp::Ordering::Less => self.opening,
            std::cmp::Ordering::Greater => other.opening,
            std::cmp::Ordering::Equal => {
                (self.opening.0 + other.opening.0, self.opening.1 + other.opening.1)
            }
        };
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            opening,
        }
    }

    /// Returns packets and bits a second, from the first burst to the last; 0 for a single burst.
    #[must_use]
    pub fn rates(&self) -> (f64, f64) {
        let seconds = (self.last - self.first) as f64 / 1e9;
        if seconds == 0.0 {
            return (0.0, 0.0);
        }
        let (packets, bytes) = (self.packets - self.opening.0, self.bytes - self.opening.1);
        (packets as f64 / seconds, bytes as f64 * 8.0 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(times: impl IntoIterator<Item = u64>) -> Tally {
        let mut tally = Tally::default();
        times.into_iter().for_each(|time| tally.add(100, time));
        tally
    }

    #[test]
    fn the_rate_is_that_of_an_even_stream() {
        let even = tally((0..=1000).map(|n| 5_000 + n * 1_000_000));
        assert_eq!(even.rates(), (1000.0, 800_000.0));
        let pairs = tally((0..=1000).flat_map(|n| [5_000 + n * 2_000_000; 2]));
        assert_eq!(pairs.rates(), (1000.0, 800_000.0));
        assert_eq!(tally([7, 7, 7]).rates(), (0.0, 0.0));
        assert_eq!(Tally::default().rates(), (0.0, 0.0));
    }

    #[test]
    fn lanes_add_up() {
        let lanes = [tally((0..=10).map(|n| 10 + n * 100)), tally((0..=10).map(|n| 60 + n * 100))];
        let all = lanes[0].merge(lanes[1]).merge(Tally::default());
        assert_eq!((all.packets, all.bytes, all.first, all.last), (22, 2200, 10, 1060));
        assert_eq!(all.rates().0, 21.0 / 1050e-9);
        assert_eq!(lanes[1].merge(lanes[0]), all);
    }
}
