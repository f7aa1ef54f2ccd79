//! VLAN tags (IEEE 802.1Q clause 9, IEEE 802.1ad).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Part of a VLAN tag after its EtherType: tag control information and the next EtherType, 4 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct Vlan {
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub tag_control: U16,
    /// Type of the next header, an [`EtherType`](crate::EtherType).
    pub ethertype: U16,
}

impl Vlan {
    /// Length of the tag without its EtherType, in bytes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Returns the VLAN identifier, 0 to 4095. 0 is a priority tag.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.tag_control.get() & 0x0fff
    }

    /// Returns the priority code point, 0 to 7.
    #[inline]
    #[must_use]
    pub const fn priority(&self) -> u8 {
        (self.tag_control.get() >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    #[inline]
    #[must_use]
    pub const fn drop_eligible(&self) -> bool {
        self.tag_control.get() & 0x1000 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_control_comes_apart() {
        let tag = Vlan { tag_control: U16::new(0xb123), ethertype: U16::new(0x0800) };
        assert_eq!((tag.id(), tag.priority(), tag.drop_eligible()), (0x123, 5, true));
    }
}
