//! Charge that is due when a packet leaves.

use crate::rules::layout::session_rules::Direction;

/// Charge that is due when a packet leaves, with the rule that decided.
///
/// Two words that are passed in registers. Fields of their own sizes would be stored one by one and
/// read back together, which stalls store forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Lower 32 bits of the version of the rules; length of the inner packet in octets.
    amount: u64,
    /// 1 + index of the block, or 0 for the simple form. From bit 32 the index of the rule in the
    /// block, from bit 48 the index of the path there, from bit 56 the direction.
    by: u64,
}

impl Charge {
    /// Creates the charge of the simple form.
    #[inline(always)]
    pub(super) const fn new(version: u32, length: u32, direction: Direction) -> Self {
        let amount = (version as u64) << 32 | length as u64;
        Self { amount, by: (direction as u64) << 56 }
    }

    /// Returns the charge by a rule of a block, which is given as 1 + its index.
    pub(super) const fn by_rule(self, block: u32, rule: u16) -> Self {
        let kept = self.by & 0xffff << 48;
        Self { by: kept | (rule as u64) << 32 | block as u64, ..self }
    }

    /// Returns the charge by a path of the block.
    pub(super) const fn by_path(self, path: u8) -> Self {
        Self { by: self.by & !(0xff << 48) | (path as u64) << 48, ..self }
    }

    /// Returns the lower 32 bits of the version of the rules.
    #[inline(always)]
    pub(crate) const fn version(self) -> u32 {
        (self.amount >> 32) as u32
    }

    /// Returns the length of the inner packet in octets.
    #[inline(always)]
    pub(super) const fn length(self) -> u32 {
        self.amount as u32
    }

    /// Returns true if the simple form decided.
    #[inline(always)]
    pub(super) const fn is_simple(self) -> bool {
        self.by as u32 == 0
    }

    /// Returns the index of the block.
    pub(super) const fn block(self) -> Option<usize> {
        match (self.by as u32).checked_sub(1) {
            Some(index) => Some(index as usize),
            None => None,
        }
    }

    /// Returns the index of the rule in the block.
    pub(super) const fn rule(self) -> usize {
        (self.by >> 32 & 0xffff) as usize
    }

    /// Returns the index of the path in the block.
    pub(super) const fn path(self) -> u8 {
        (self.by >> 48) as u8
    }

    /// Returns the direction.
    #[inline(always)]
    pub(super) const fn direction(self) -> Direction {
        if self.by >> 56 == Direction::Uplink as u64 {
            Direction::Uplink
        } else {
            Direction::Downlink
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_comes_back() {
        for direction in [Direction::Uplink, Direction::Downlink] {
            let simple = Charge::new(u32::MAX, 1500, direction);
            assert_eq!((simple.version(), simple.length()), (u32::MAX, 1500));
            assert_eq!(
                (simple.direction(), simple.is_simple(), simple.block()),
                (direction, true, None)
            );
            let rule = simple.by_path(255).by_rule(u32::MAX, u16::MAX);
            assert_eq!((rule.version(), rule.length()), (u32::MAX, 1500));
            assert_eq!((rule.direction(), rule.is_simple()), (direction, false));
            assert_eq!(
                (rule.block(), rule.rule(), rule.path()),
                (Some(u32::MAX as usize - 1), 65535, 255)
            );
            let other = rule.by_path(7).by_rule(1, 2);
            assert_eq!((other.block(), other.rule(), other.path()), (Some(0), 2, 7));
            assert_eq!(other.direction(), direction);
        }
    }
}
