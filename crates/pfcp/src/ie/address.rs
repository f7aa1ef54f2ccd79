//! Addresses of tunnel endpoints and UEs, which the UPF may choose, and of control plane functions.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Ie, Octets, bit, put_address, put_string16};
use crate::{Cause, IeType};

/// F-TEID: a tunnel endpoint, or the request that the UPF choose one (CHOOSE, TS 29.244 clause
/// 8.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FTeid {
    /// Tunnel endpoint identifier; 0 if the UPF is to choose it.
    pub teid: u32,
    /// IPv4 address of the endpoint.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the endpoint.
    pub v6: Option<Ipv6Addr>,
    /// True if the UPF is to choose an IPv4 address and the TEID. If it is to choose an address of
    /// any family, both are true.
    pub choose_v4: bool,
    /// True if the UPF is to choose an IPv6 address and the TEID.
    pub choose_v6: bool,
    /// CHOOSE ID: endpoints of the session with the same value are to be one endpoint.
    pub choose_id: Option<u8>,
}

impl FTeid {
    /// Returns true if the UPF is to choose the endpoint.
    #[must_use]
    pub const fn is_choose(&self) -> bool {
        self.choose_v4 || self.choose_v6
    }
}

impl Ie<'_> for FTeid {
    const TYPE: IeType = IeType::F_TEID;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let (v4, v6) = (flags & 1 != 0, flags & 2 != 0);
        if flags & 4 != 0 {
            let choose_id = octets.when(flags & 8 != 0, Octets::u8)?;
            // Some SMFs set neither V4 nor V6: the UPF chooses the families, too.
            let is_any = !v4 && !v6;
            let (choose_v4, choose_v6) = (v4 || is_any, v6 || is_any);
            return Ok(Self { choose_v4, choose_v6, choose_id, ..Self::default() });
        }
        if !v4 && !v6 {
            return Err(Cause::MANDATORY_IE_INCORRECT);
        }
        let teid = octets.u32()?;
        let v4 = octets.when(v4, Octets::v4)?;
        let v6 = octets.when(v6, Octets::v6)?;
        Ok(Self { teid, v4, v6, ..Self::default() })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        if self.is_choose() {
            let id = bit(self.choose_id.is_some(), 3);
            to.push(bit(self.choose_v4, 0) | bit(self.choose_v6, 1) | bit(true, 2) | id);
            to.extend(self.choose_id);
            return;
        }
        to.push(bit(self.v4.is_some(), 0) | bit(self.v6.is_some(), 1));
        to.extend_from_slice(&self.teid.to_be_bytes());
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
    }
}

/// UE IP Address (TS 29.244 clause 8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UeIpAddress {
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address or prefix.
    pub v6: Option<Ipv6Addr>,
    /// In a PDI: true if it is the packet's destination address, false for the source.
    pub is_destination: bool,
    /// Number of delegated prefix bits. The prefix is shorter than 64 bits by this number.
    pub prefix_delegation_bits: Option<u8>,
    /// Length of the prefix, if it is neither 64 nor given by the delegated bits.
    pub prefix_length: Option<u8>,
    /// True if the UPF is to choose an IPv4 address (CHOOSE).
    pub choose_v4: bool,
    /// True if the UPF is to choose an IPv6 prefix (CHOOSE).
    pub choose_v6: bool,
}

impl Ie<'_> for UeIpAddress {
    const TYPE: IeType = IeType::UE_IP_ADDRESS;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let v4 = octets.when(flags & 2 != 0, Octets::v4)?;
        let v6 = octets.when(flags & 1 != 0, Octets::v6)?;
        Ok(Self {
            v4,
            v6,
            is_destination: flags & 4 != 0,
            prefix_delegation_bits: octets.when(flags & 8 != 0, Octets::u8)?,
            prefix_length: octets.when(flags & 0x40 != 0, Octets::u8)?,
            choose_v4: flags & 0x10 != 0,
            choose_v6: flags & 0x20 != 0,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let addresses = bit(self.v6.is_some(), 0) | bit(self.v4.is_some(), 1);
        let prefix =
            bit(self.prefix_delegation_bits.is_some(), 3) | bit(self.prefix_length.is_some(), 6);
        let choose = bit(self.choose_v4, 4) | bit(self.choose_v6, 5);
        to.push(addresses | bit(self.is_destination, 2) | prefix | choose);
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
        to.extend(self.prefix_delegation_bits);
        to.extend(self.prefix_length);
    }
}

/// Alternative SMF IP Address: address of another SMF of the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlternativeSmfIpAddress {
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// True if the peer should prefer this address.
    pub is_preferred: bool,
}

impl Ie<'_> for AlternativeSmfIpAddress {
    const TYPE: IeType = IeType::ALTERNATIVE_SMF_IP_ADDRESS;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let v4 = octets.when(flags & 2 != 0, Octets::v4)?;
        let v6 = octets.when(flags & 1 != 0, Octets::v6)?;
        Ok(Self { v4, v6, is_preferred: flags & 4 != 0 })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let flags = bit(self.v6.is_some(), 0) | bit(self.v4.is_some(), 1);
        to.push(flags | bit(self.is_preferred, 2));
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
    }
}

/// CP PFCP Entity IP Address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpPfcpEntityIpAddress {
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

impl Ie<'_> for CpPfcpEntityIpAddress {
    const TYPE: IeType = IeType::CP_PFCP_ENTITY_IP_ADDRESS;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let v4 = octets.when(flags & 2 != 0, Octets::v4)?;
        let v6 = octets.when(flags & 1 != 0, Octets::v6)?;
        Ok(Self { v4, v6 })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(bit(self.v6.is_some(), 0) | bit(self.v4.is_some(), 1));
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
    }
}

/// UE IP Address Pool Identity: pool from which an address is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UeIpAddressPoolIdentity<'a>(pub &'a [u8]);

impl<'a> Ie<'a> for UeIpAddressPoolIdentity<'a> {
    const TYPE: IeType = IeType::UE_IP_ADDRESS_POOL_IDENTITY;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        Octets::new(value).string16().map(Self)
    }

    fn encode(&self, to: &mut Vec<u8>) {
        put_string16(to, self.0);
    }
}

/// IP Version: IP versions of a pool's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IpVersion {
    /// IPv4 addresses.
    pub v4: bool,
    /// IPv6 addresses.
    pub v6: bool,
}

impl Ie<'_> for IpVersion {
    const TYPE: IeType = IeType::IP_VERSION;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let flags = Octets::new(value).u8()?;
        Ok(Self { v4: flags & 1 != 0, v6: flags & 2 != 0 })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(bit(self.v4, 0) | bit(self.v6, 1));
    }
}
