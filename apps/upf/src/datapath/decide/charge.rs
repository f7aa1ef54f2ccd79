//! What is charged for a packet when it leaves.

use crate::rules::layout::rules::Direction;

/// What is charged for a packet when it leaves: by which rule it was decided.
///
/// Two words, which are handed on in registers: as fields of their own sizes they would be written
/// one by one and soon be read together, which a processor waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Lower bits of the version of the rules, octets of the inner packet.
    what: u64,
    /// 1 + the place of the block, or 0: the session's line decides; the rule's place in the block
    /// from bit 32 on, the place of the path there from bit 48 on, from bit 56 on the direction.
    by: u64,
}

impl Charge {
    /// By the line of a direction.
    #[inline(always)]
    pub(super) const fn new(version: u32, length: u32, direction: Direction) -> Self {
        let what = (version as u64) << 32 | length as u64;
        Self { what, by: (direction as u64) << 56 }
    }

    /// By a rule of a block, which is given by 1 + its place.
    pub(super) const fn by_rule(self, block: u32, rule: u16) -> Self {
        let kept = self.by & 0xffff << 48;
        Self { by: kept | (rule as u64) << 32 | block as u64, ..self }
    }

    /// By a path of the block.
    pub(super) const fn by_path(self, path: u8) -> Self {
        Self { by: self.by & !(0xff << 48) | (path as u64) << 48, ..self }
    }

    /// Lower bits of the version of the rules.
    #[inline(always)]
    pub(crate) const fn version(self) -> u32 {
        (self.what >> 32) as u32
    }

    /// Octets of the inner packet.
    #[inline(always)]
    pub(super) const fn length(self) -> u32 {
        self.what as u32
    }

    /// Whether the session's line decides.
    #[inline(always)]
    pub(super) const fn is_by_line(self) -> bool {
        self.by as u32 == 0
    }

    /// The place of the block.
    pub(super) const fn block(self) -> Option<usize> {
        match (self.by as u32).checked_sub(1) {
            Some(place) => Some(place as usize),
            None => None,
        }
    }

    /// The rule's place in the block.
    pub(super) const fn rule(self) -> usize {
        (self.by >> 32 & 0xffff) as usize
    }

    /// The place of the path in the block.
    pub(super) const fn path(self) -> u8 {
        (self.by >> 48) as u8
    }

    /// From or to the user.
    #[inline(always)]
    pub(super) const fn direction(self) -> Direction {
        if self.by >> 56 == Direction::Up as u64 { Direction::Up } else { Direction::Down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_comes_back() {
        for direction in [Direction::Up, Direction::Down] {
            let line = Charge::new(u32::MAX, 1500, direction);
            assert_eq!((line.version(), line.length()), (u32::MAX, 1500));
            assert_eq!(
                (line.direction(), line.is_by_line(), line.block()),
                (direction, true, None)
            );
            let rule = line.by_path(255).by_rule(u32::MAX, u16::MAX);
            assert_eq!((rule.version(), rule.length()), (u32::MAX, 1500));
            assert_eq!((rule.direction(), rule.is_by_line()), (direction, false));
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
