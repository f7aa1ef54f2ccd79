//! ARP for IPv4 over Ethernet (RFC 826).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::MacAddress;

/// ARP packet for IPv4 over Ethernet, 28 bytes. Check [`Arp::is_ipv4`] before using the addresses.
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
pub struct Arp {
    /// Hardware address space, 1 for Ethernet.
    pub hardware_type: U16,
    /// Protocol address space, 0x0800 for IPv4.
    pub protocol_type: U16,
    /// Length of a hardware address, 6.
    pub hardware_length: u8,
    /// Length of a protocol address, 4.
    pub protocol_length: u8,
    /// [`Arp::REQUEST`] or [`Arp::REPLY`].
    pub operation: U16,
    /// Hardware address of the sender.
    pub sender_hardware: MacAddress,
    /// IPv4 address of the sender.
    pub sender_protocol: [u8; 4],
    /// Hardware address of the target; zero in a request.
    pub target_hardware: MacAddress,
    /// IPv4 address of the target.
    pub target_protocol: [u8; 4],
}

impl Arp {
    /// Length of the packet, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// Operation: request for the target's hardware address.
    pub const REQUEST: u16 = 1;
    /// Operation: reply with the sender's hardware address.
    pub const REPLY: u16 = 2;

    /// Returns true if address spaces and lengths are those of IPv4 over Ethernet.
    #[inline]
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.hardware_type.get() == 1
            && self.protocol_type.get() == crate::EtherType::IPV4
            && self.hardware_length == 6
            && self.protocol_length == 4
    }
}
