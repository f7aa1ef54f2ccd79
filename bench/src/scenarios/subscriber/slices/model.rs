//! The experiment on more cores than the machine has: a discrete event simulation that uses only
//! measured costs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::loops::lookup::workload::Random;

/// Number of packets simulated for each core.
const PACKETS: u64 = 20_000;

/// Costs of a packet, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Mean time outside the section: the loop of the lane and the private work.
    pub outside: f64,
    /// Time of the section with the lock, without contention.
    pub free: f64,
    /// Time of the section when the lock is taken over from another core.
    pub contended: f64,
}

/// Distribution of the private work over packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Exponential distribution.
    Exponential,
    /// Constant work.
    Fixed,
}

/// Returns the packets per nanosecond of `cores` cores that share one lock, which is granted in the
/// order of requests.
#[must_use]
pub fn locked(cores: usize, costs: Costs, spread: Spread) -> f64 {
    let mut random = Random::new(0x10c4);
    let mut outside = |mean: f64| match spread {
        Spread::Fixed => mean,
        // A number of 53 bits, never 0.
        Spread::Exponential => {
            -mean * (((random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()
        }
    };
    // Whole picoseconds have a total order.
    let whole = |time: f64| (time * 1e3) as u64;
    let mut asking: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    for core in 0..cores {
        // The cores start at different times.
        let first = outside(costs.outside) + costs.outside * core as f64 / cores as f64;
        asking.push(Reverse(whole(first)));
    }
    let (free, contended) = (whole(costs.free), whole(costs.contended));
    let (mut until, packets) = (0, PACKETS * cores as u64);
    for _ in 0..packets {
        let Some(Reverse(time)) = asking.pop() else { return 0.0 };
        until = if until <= time { time + free } else { until + contended };
        asking.push(Reverse(until + whole(outside(costs.outside))));
    }
    packets as f64 / (until as f64 / 1e3)
}

/// Returns the packets per nanosecond of `cores` cores that share nothing.
#[must_use]
pub fn owned(cores: usize, packet: f64) -> f64 {
    cores as f64 / packet
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { outside: 900.0, free: 100.0, contended: 300.0 };

    #[test]
    fn one_core_waits_for_nobody() {
        for spread in [Spread::Exponential, Spread::Fixed] {
            let rate = locked(1, COSTS, spread);
            assert!((rate * 1000.0 - 1.0).abs() < 0.02, "{rate}");
        }
    }

    #[test]
    fn many_cores_get_what_the_lock_gives() {
        for cores in [24, 48] {
            let rate = locked(cores, COSTS, Spread::Exponential);
            assert!((rate * 300.0 - 1.0).abs() < 0.02, "{cores}: {rate}");
        }
    }

    #[test]
    fn two_cores_wait_as_queueing_theory_says() {
        // Two customers, exponential work of mean Z, one server with fixed service S: without a
        // hand-over the rate is between the bounds 1/(Z+2S) x 2 and 2/(Z+S).
        let costs = Costs { contended: 100.0, ..COSTS };
        let rate = locked(2, costs, Spread::Exponential);
        assert!(rate < 2.0 / 1000.0 && rate > 2.0 / 1100.0, "{rate}");
    }
}
