//! Windows of received sequence numbers, one for each flow.

/// Relation of a frame to the earlier arrivals of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next number, or a higher one that leaves a gap.
    InOrder,
    /// A number below one received before: reordered (RFC 4737 clause 3.3).
    Late,
    /// A number received before.
    Duplicate,
    /// A number before the window; it may be a duplicate.
    Ancient,
}

/// Bit maps of the last `window` sequence numbers of each flow. Nothing is allocated after
/// [`new`](Self::new).
#[derive(Debug)]
pub struct Windows {
    /// Next expected number of each flow: one more than the highest received.
    next: Vec<u64>,
    bits: Vec<u64>,
    window: u64,
}

impl Windows {
    /// Creates windows for `flows` flows. `window` is their length, a power of two of at least 64.
    #[must_use]
    pub fn new(flows: usize, window: u32) -> Self {
        let window = u64::from(window.next_power_of_two().max(64));
        Self { next: vec![0; flows], bits: vec![0; flows * (window / 64) as usize], window }
    }

    /// Returns the number of flows.
    #[inline]
    #[must_use]
    pub fn flows(&self) -> usize {
        self.next.len()
    }

    /// Returns the next expected number of each flow, 0 for a flow without arrivals.
    #[must_use]
    pub fn expected(&self) -> &[u64] {
        &self.next
    }

    /// Registers the arrival of a number in a flow. Numbers of a flow that does not exist are
    /// ancient.
    #[inline]
    pub fn arrive(&mut self, flow: usize, sequence: u32) -> Arrival {
        let words = (self.window / 64) as usize;
        let Some(next) = self.next.get_mut(flow) else {
            return Arrival::Ancient;
        };
        let bits = &mut self.bits[flow * words..][..words];
        let position = |number: u64| ((number / 64) as usize & (words - 1), 1u64 << (number % 64));
        let ahead = i64::from(sequence.wrapping_sub(*next as u32).cast_signed());
        let Some(number) = next.checked_add_signed(ahead) else {
            return Arrival::Ancient; // before the first
        };
        let (word, bit) = position(number);
        if ahead < 0 {
            if ahead.unsigned_abs() > self.window {
                return Arrival::Ancient;
            }
            let seen = bits[word] & bit != 0;
            bits[word] |= bit;
            return if seen { Arrival::Duplicate } else { Arrival::Late };
        }
        if number - *next >= self.window {
            bits.fill(0);
        } else {
            for missing in *next..number {
                let (word, bit) = position(missing);
                bits[word] &= !bit;
            }
        }
        bits[word] |= bit;
        *next = number + 1;
        Arrival::InOrder
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_arrival_is_known() {
        let mut windows = Windows::new(2, 64);
        let numbers = [0, 1, 3, 2, 3, 100, 37, 36, 35, 101, 36, 37];
        let kinds = numbers.map(|number| windows.arrive(1, number));
        use Arrival::{Ancient, Duplicate, InOrder, Late};
        assert_eq!(
            kinds,
            [
                InOrder, InOrder, InOrder, Late, Duplicate, InOrder, Late, Ancient, Ancient,
                InOrder, Ancient, Ancient
            ]
        );
        assert_eq!(windows.expected(), [0, 102]);
        assert_eq!(windows.arrive(2, 0), Ancient, "a flow that there is not");
    }

    #[test]
    fn numbers_may_wrap() {
        let mut windows = Windows::new(1, 64);
        for quarter in 1..=4u32 {
            assert_eq!(windows.arrive(0, quarter.wrapping_mul(1 << 30)), Arrival::InOrder);
        }
        assert_eq!(windows.arrive(0, 1), Arrival::InOrder);
        assert_eq!(windows.arrive(0, u32::MAX), Arrival::Late);
        assert_eq!(windows.arrive(0, 0), Arrival::Duplicate);
        assert_eq!(windows.expected(), [(1 << 32) + 2]);
    }

    proptest! {
        /// Compares the window with a set of all numbers.
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((0..300u64, 0..100u64), 1..400)) {
            let mut windows = Windows::new(1, 128);
            let (mut seen, mut next) = (HashSet::new(), 0u64);
            for (base, (forward, back)) in steps.into_iter().enumerate() {
                let number = (base as u64 + forward).saturating_sub(back);
                let expected = if number >= next {
                    Arrival::InOrder
                } else if next - number > 128 {
                    Arrival::Ancient
                } else if seen.contains(&number) {
                    Arrival::Duplicate
                } else {
                    Arrival::Late
                };
                prop_assert_eq!(windows.arrive(0, number as u32), expected);
                if expected != Arrival::Ancient {
                    seen.insert(number);
                }
                next = next.max(number + 1);
            }
        }
    }
}
