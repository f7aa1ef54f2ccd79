//! Ethernet II (IEEE 802.3 clause 3.2, type interpretation).

use std::fmt;
use std::str::FromStr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// MAC address (EUI-48), in the order of transmission.
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
    PartialOrd,
    Ord,
    Hash,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Broadcast address, `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true if it is a group address (I/G bit), such as the broadcast address.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true if it is locally administered (U/L bit).
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Error for a text that is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMacAddress;

impl fmt::Display for InvalidMacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .write_str("not a MAC address: write six pairs of hex digits, as 02:00:5e:10:00:01")
    }
}

impl std::error::Error for InvalidMacAddress {}

impl FromStr for MacAddress {
    type Err = InvalidMacAddress;

    /// Parses six pairs of hex digits separated by `:` or `-`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut address = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut address {
            let part = parts.next().ok_or(InvalidMacAddress)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(InvalidMacAddress);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| InvalidMacAddress)?;
        }
        if parts.next().is_some() {
            return Err(InvalidMacAddress);
        }
        Ok(Self(address))
    }
}

/// Ethernet header, 14 bytes.
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
pub struct Ethernet {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Type of the payload, an [`EtherType`]. A value below 1536 is a length (IEEE 802.3).
    pub ethertype: U16,
}

impl Ethernet {
    /// Length of the header, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
}

/// EtherType numbers (IANA, IEEE 802 Numbers). A namespace: the values are `u16`.
#[derive(Debug)]
pub enum EtherType {}

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// A VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// MPLS unicast (RFC 3032).
    pub const MPLS: u16 = 0x8847;
    /// PPPoE discovery (RFC 2516).
    pub const PPPOE_DISCOVERY: u16 = 0x8863;
    /// PPPoE session (RFC 2516).
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// A service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// LLDP (IEEE 802.1AB).
    pub const LLDP: u16 = 0x88cc;

    /// Returns true if a VLAN tag follows: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    #[inline]
    #[must_use]
    pub const fn is_vlan(ethertype: u16) -> bool {
        matches!(ethertype, Self::VLAN | Self::SERVICE_VLAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_reads_what_it_prints() {
        let address = MacAddress([0x02, 0x00, 0x5e, 0x10, 0xab, 0xff]);
        assert_eq!(address.to_string(), "02:00:5e:10:ab:ff");
        assert_eq!("02:00:5e:10:ab:ff".parse(), Ok(address));
        assert_eq!("02-00-5E-10-AB-FF".parse(), Ok(address));
        assert!(address.is_local() && !address.is_multicast());
        assert!(MacAddress::BROADCAST.is_multicast());
    }

    #[test]
    fn what_is_no_mac_address_is_refused() {
        for text in [
            "",
            "02",
            "02:00:5e:10:ab",
            "02:00:5e:10:ab:ff:00",
            "2:0:5e:10:ab:ff",
            "02:00:5e:10:ab:fg",
            "02:00:5e:10:ab:+f",
            "02:00-5e:10:ab:ff",
            " 02:00:5e:10:ab:ff",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(InvalidMacAddress), "{text:?}");
        }
    }
}
