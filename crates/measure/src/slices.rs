//! Runs two contenders in turns, so that other load on the machine affects both.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::statistics::quantile;

/// Number and length of the measured slices.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of pairs of slices.
    pub pairs: usize,
    /// Approximate length of a slice.
    pub slice: Duration,
}

/// Cost of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// CPU time of the thread that did the work, in nanoseconds.
    pub cpu: u64,
    /// Number of packets that were completely processed.
    pub packets: u64,
}

/// Implementation of the measured work.
pub trait Contender {
    /// Runs the work for about `length`.
    ///
    /// # Errors
    /// Returns an error if the work could not be done or packets were lost. The slice is then
    /// invalid.
    fn run(&mut self, length: Duration) -> Result<Slice>;
}

/// CPU time per packet of both contenders, in nanoseconds. Values with the same index form a pair.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Costs of the framework.
    pub ours: Vec<f64>,
    /// Costs of the rival.
    pub rival: Vec<f64>,
}

/// Factor over the fastest tenth of the rival's costs above which a pair is not at pace.
const PACE: f64 = 1.25;

impl Pairs {
    /// Returns the pairs in which the rival ran at its usual pace. A virtual CPU can be half a core
    /// for minutes, while its host uses the other hyperthread. Everything then takes up to twice as
    /// long. Only the rival's cost selects the pairs, so the selection does not favour our results.
    #[must_use]
    pub fn at_pace(&self) -> Self {
        let limit = PACE * quantile(&self.rival, 0.1);
        let pairs = self.ours.iter().zip(&self.rival);
        let (ours, rival) = pairs.filter(|(_, rival)| **rival <= limit).unzip();
        Self { ours, rival }
    }
}

/// Number of turns in which the slices of a pair are taken. Other load on the machine changes
/// within a second.
const PARTS: u32 = 10;

/// Runs one pair of slices, in turns of a tenth each, and appends its costs. The order changes from
/// turn to turn.
///
/// # Errors
/// Returns the error of a contender, or an error if a slice moved no packet.
pub fn pair(
    pairs: &mut Pairs,
    slice: Duration,
    ours: &mut dyn Contender,
    rival: &mut dyn Contender,
) -> Result<()> {
    let mut sums = [Slice::default(); 2];
    let start = pairs.ours.len() as u32;
    for part in start..start + PARTS {
        for second in [false, true] {
            let rivals_turn = part.is_multiple_of(2) == second;
            let contender: &mut dyn Contender = if rivals_turn { rival } else { ours };
            let part = contender.run(slice / PARTS)?;
            let sum = &mut sums[usize::from(rivals_turn)];
            sum.cpu += part.cpu;
            sum.packets += part.packets;
        }
    }
    if sums.iter().any(|sum| sum.packets == 0) {
        return Err("a slice moved no packet".into());
    }
    let [ours, rival] = sums.map(|sum| sum.cpu as f64 / sum.packets as f64);
    pairs.ours.push(ours);
    pairs.rival.push(rival);
    Ok(())
}

/// Returns the CPU time that the calling thread has used, in nanoseconds.
#[must_use]
pub fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Calls `work`, which returns the number of packets it moved, repeatedly for `length`. The calls
/// are timed with their overhead, so a call should take at least a hundred microseconds.
///
/// # Errors
/// Returns the error of `work`.
pub fn timed(length: Duration, mut work: impl FnMut() -> Result<u64>) -> Result<Slice> {
    let end = Instant::now() + length;
    let (start, mut packets) = (thread_cpu(), 0);
    loop {
        packets += work()?;
        if Instant::now() >= end {
            return Ok(Slice { cpu: thread_cpu() - start, packets });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Logged<'a>(char, &'a std::cell::RefCell<String>, u64);

    impl Contender for Logged<'_> {
        fn run(&mut self, _: Duration) -> Result<Slice> {
            self.1.borrow_mut().push(self.0);
            Ok(Slice { cpu: self.2 * 10, packets: 10 })
        }
    }

    #[test]
    fn the_order_alternates_and_the_values_stay_with_their_owner() {
        let log = std::cell::RefCell::default();
        let (mut ours, mut rival) = (Logged('o', &log, 7), Logged('r', &log, 5));
        let mut pairs = Pairs::default();
        for _ in 0..2 {
            pair(&mut pairs, Duration::ZERO, &mut ours, &mut rival).unwrap();
        }
        assert_eq!(*log.borrow(), "orro".repeat(5) + &"roor".repeat(5));
        assert_eq!((pairs.ours, pairs.rival), (vec![7.0; 2], vec![5.0; 2]));
    }

    #[test]
    fn pairs_are_picked_by_what_the_rival_took() {
        let rival: Vec<f64> = (0..20).map(|number| [10.0, 12.4, 12.6, 20.0][number % 4]).collect();
        let ours = (0..20).map(f64::from).collect();
        let picked = Pairs { ours, rival }.at_pace();
        assert_eq!(picked.ours, [0.0, 1.0, 4.0, 5.0, 8.0, 9.0, 12.0, 13.0, 16.0, 17.0]);
        assert!(picked.rival.iter().all(|took| *took <= 12.5));
    }

    #[test]
    fn a_slice_without_packets_is_an_error() {
        struct Dead;
        impl Contender for Dead {
            fn run(&mut self, _: Duration) -> Result<Slice> {
                Ok(Slice::default())
            }
        }
        assert!(pair(&mut Pairs::default(), Duration::ZERO, &mut Dead, &mut Dead).is_err());
    }

    #[test]
    fn time_asleep_is_no_cpu_time() {
        let slice = timed(Duration::from_millis(20), || {
            std::thread::sleep(Duration::from_millis(5));
            Ok(1)
        });
        let slice = slice.unwrap();
        assert!(slice.packets >= 1 && slice.cpu < 15_000_000, "{slice:?}");
    }
}
