//! How a packet came, and which packets the lane handles alike.

use super::{FROM_KERNEL, Packet, STEERED};

impl Packet {
    /// Whether the lane may handle both alike: same verdict, same port, same flags. The three lie
    /// side by side, so that this is one comparison of eight bytes.
    #[inline]
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.way() == other.way()
    }

    /// Whether all [go](Self::goes_with) together: three instructions for each.
    #[inline]
    pub(crate) fn all_go_together(packets: &[Self]) -> bool {
        let Some(first) = packets.first().map(Self::way) else { return true };
        let (fours, rest) = packets.as_chunks::<4>();
        let differs = |packets: &[Self]| {
            packets.iter().fold(0, |differs, packet| differs | (packet.way() ^ first))
        };
        fours.iter().fold(differs(rest), |differs_before, four| differs_before | differs(four)) == 0
    }

    #[inline]
    fn way(&self) -> u64 {
        let port_and_flags = u64::from(self.port.0) | u64::from(self.flags) << 16;
        port_and_flags | u64::from(self.verdict.0) << 32
    }

    /// Whether Linux sent the packet (it came through the kernel peer of its port).
    #[inline]
    #[must_use]
    pub fn is_from_kernel(&self) -> bool {
        self.flags & FROM_KERNEL != 0
    }

    #[inline]
    pub(crate) fn set_from_kernel(&mut self) {
        self.flags |= FROM_KERNEL;
    }

    /// Whether steering has claimed the packet, on a port where the lane looks after that.
    #[inline]
    pub(crate) fn is_steered(&self) -> bool {
        self.flags & STEERED != 0
    }

    #[inline]
    pub(crate) fn set_steered(&mut self) {
        self.flags |= STEERED;
    }

    #[inline]
    pub(crate) fn set_unsteered(&mut self) {
        self.flags &= !STEERED;
    }

    /// What of the flags says how the packet came, for one that is put away.
    pub(crate) fn origin(&self) -> u16 {
        self.flags & (FROM_KERNEL | STEERED)
    }

    /// Says how a packet came that was put away.
    pub(crate) fn set_origin(&mut self, origin: u16) {
        self.flags |= origin & (FROM_KERNEL | STEERED);
    }
}
