//! Verdicts: the labels that an application puts on packets, and the ports that they name.

use fastlane_table::counters::PortCounter;

/// Number of a port: its index among the configured ports, in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

/// Label that an application puts on a packet.
///
/// See the crate `fastlane-hold` for an application that uses [`Hold`](Self::Hold).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Gives the packet to Linux. Packets that the application does not label go there too.
    #[default]
    Kernel,
    /// Drops the packet.
    Drop,
    /// Sends the packet by its port of arrival.
    Reflect,
    /// Sends the packet by another port.
    Forward(PortId),
    /// Buffers the packet in the lane until the application [resumes](crate::Turn::resume) the key.
    Hold(HoldKey),
}

impl Verdict {
    /// Returns the counter of packets with this verdict.
    #[inline(always)]
    pub(crate) fn counter(self) -> PortCounter {
        match self {
            Self::Kernel => PortCounter::VerdictKernel,
            Self::Drop => PortCounter::VerdictDrop,
            Self::Reflect => PortCounter::VerdictReflect,
            Self::Forward(_) => PortCounter::VerdictForward,
            Self::Hold(_) => PortCounter::VerdictHold,
        }
    }
}

/// Key of held packets: a number of 24 bits that the application chooses, for example the index of
/// a table entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldKey(u32);

impl HoldKey {
    /// Greatest number.
    pub const MAX: u32 = (1 << 24) - 1;

    /// Creates the key with this number, or returns `None` if it is greater than
    /// [`MAX`](Self::MAX).
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// Returns the number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Verdict as a packet stores it: the kind in the top byte, the operand below.
///
/// Programs in other languages write this word, so every value is possible. An unknown value drops
/// the packet and increments `drop_bad_verdict`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct RawVerdict(pub u32);

impl RawVerdict {
    const DROP: u32 = 1 << 24;
    const REFLECT: u32 = 2 << 24;
    const FORWARD: u32 = 3 << 24;
    const HOLD: u32 = 4 << 24;
    const OPERAND: u32 = (1 << 24) - 1;

    /// Returns the verdict, or `None` if the value has no meaning.
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

    /// Returns true if the packet leaves by the port on which it arrived.
    #[inline(always)]
    pub(crate) fn is_reflect(self) -> bool {
        self.0 == Self::REFLECT
    }

    /// Returns the port by which a packet from port `source` leaves, and the counter of the
    /// verdict, or `None` if the packet does not leave by a port.
    // The commonest verdict comes first: it costs one comparison.
    #[inline(always)]
    pub(crate) fn exit(self, source: usize) -> Option<(usize, PortCounter)> {
        match self.0 {
            Self::REFLECT => Some((source, PortCounter::VerdictReflect)),
            other if other & 0xffff_0000 == Self::FORWARD => {
                Some(((other & 0xffff) as usize, PortCounter::VerdictForward))
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
    fn every_verdict_survives_encoding_and_decoding() {
        let forwards = [0, 1, 255, 256, u16::MAX].map(|port| Verdict::Forward(PortId(port)));
        let holds = [0, 1, 0xffff, HoldKey::MAX].map(|key| Verdict::Hold(HoldKey(key)));
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
        assert_eq!(HoldKey::new(HoldKey::MAX).map(HoldKey::number), Some(0x00ff_ffff));
        assert_eq!(HoldKey::new(HoldKey::MAX + 1), None);
    }

    #[test]
    fn other_values_are_no_verdict() {
        for word in [1, 0x0100_0001, 0x0200_ffff, 0x0301_0000, 0x0500_0000, 0x0600_0000, u32::MAX] {
            assert_eq!(RawVerdict(word).verdict(), None, "{word:#x}");
        }
    }
}
