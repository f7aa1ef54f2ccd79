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
}

/// A verdict as it lies in the packet: the kind in the top byte, its operand below.
///
/// Programs in other languages write this word, so every value is possible;
/// [`verdict`](Self::verdict) is the checked view. The kind 4 is taken by `Hold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct RawVerdict(pub u32);

impl RawVerdict {
    const DROP: u32 = 1 << 24;
    const REFLECT: u32 = 2 << 24;
    const FORWARD: u32 = 3 << 24;

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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_survives_the_way_into_memory_and_back() {
        let forwards = [0, 1, 255, 256, u16::MAX].map(|port| Verdict::Forward(PortId(port)));
        for verdict in
            [Verdict::Kernel, Verdict::Drop, Verdict::Reflect].into_iter().chain(forwards)
        {
            assert_eq!(RawVerdict::from(verdict).verdict(), Some(verdict));
        }
    }

    #[test]
    fn other_words_are_no_verdict() {
        for word in [1, 0x0100_0001, 0x0200_ffff, 0x0301_0000, 0x0400_0000, 0x0500_0000, u32::MAX] {
            assert_eq!(RawVerdict(word).verdict(), None, "{word:#x}");
        }
    }
}
