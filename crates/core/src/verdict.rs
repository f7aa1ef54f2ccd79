//! What shall become of a packet.

use crate::PortId;

/// The label that an application puts on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It belongs to Linux: what the application does not claim is Linux's.
    #[default]
    Kernel,
    /// Nobody needs it.
    Drop,
    /// Back out of the port that it came from.
    Reflect,
    /// Out of another port.
    Forward(PortId),
    /// Not yet: the lane keeps it until the application [resumes](crate::Turn::resume) the key.
    Hold(HoldKey),
}

/// What packets are held under: a number of 24 bits that means something to the application, the
/// entry of a table for example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldKey(u32);

impl HoldKey {
    /// The greatest number.
    pub const MOST: u32 = (1 << 24) - 1;

    /// The key with this number; `None` when it is greater than [`MOST`](Self::MOST).
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MOST { Some(Self(number)) } else { None }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A verdict as it lies in the packet: the kind in the top byte, its operand below.
///
/// Programs in other languages write this word, so every value is possible;
/// [`verdict`](Self::verdict) is the checked view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct RawVerdict(pub u32);

impl RawVerdict {
    const DROP: u32 = 1 << 24;
    const REFLECT: u32 = 2 << 24;
    const FORWARD: u32 = 3 << 24;
    const HOLD: u32 = 4 << 24;
    const OPERAND: u32 = (1 << 24) - 1;

    /// The meaning of the word, or `None` when it has none.
    #[inline]
    #[must_use]
    pub fn verdict(self) -> Option<Verdict> {
        match self.0 {
            0 => Some(Verdict::Kernel),
            Self::DROP => Some(Verdict::Drop),
            Self::REFLECT => Some(Verdict::Reflect),
            other if other & 0xffff_0000 == Self::FORWARD => {
                Some(Verdict::Forward(PortId((other & 0xffff) as u16)))
            }
            other if other & !Self::OPERAND == Self::HOLD => {
                Some(Verdict::Hold(HoldKey(other & Self::OPERAND)))
            }
            _ => None,
        }
    }
}

impl From<Verdict> for RawVerdict {
    #[inline]
    fn from(verdict: Verdict) -> Self {
        Self(match verdict {
            Verdict::Kernel => 0,
            Verdict::Drop => Self::DROP,
            Verdict::Reflect => Self::REFLECT,
            Verdict::Forward(port) => Self::FORWARD | u32::from(port.0),
            Verdict::Hold(key) => Self::HOLD | key.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_survives_the_way_into_memory_and_back() {
        let forwards = [0, 1, 255, 256, u16::MAX].map(|port| Verdict::Forward(PortId(port)));
        let holds = [0, 1, 0xffff, HoldKey::MOST].map(|key| Verdict::Hold(HoldKey(key)));
        for verdict in [Verdict::Kernel, Verdict::Drop, Verdict::Reflect]
            .into_iter()
            .chain(forwards)
            .chain(holds)
        {
            assert_eq!(RawVerdict::from(verdict).verdict(), Some(verdict));
        }
    }

    #[test]
    fn a_key_has_24_bits() {
        assert_eq!(HoldKey::new(HoldKey::MOST).map(HoldKey::number), Some(0x00ff_ffff));
        assert_eq!(HoldKey::new(HoldKey::MOST + 1), None);
    }

    #[test]
    fn other_words_are_no_verdict() {
        for word in [1, 0x0100_0001, 0x0200_ffff, 0x0301_0000, 0x0500_0000, 0x0600_0000, u32::MAX] {
            assert_eq!(RawVerdict(word).verdict(), None, "{word:#x}");
        }
    }
}
