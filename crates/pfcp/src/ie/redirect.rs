//! Redirection of traffic (TS 29.244 clause 8.2.20).

use alloc::vec::Vec;

use super::{Ie, Octets, put_string16};
use crate::{Cause, IeType};

/// Redirect Information: new destination of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RedirectInformation<'a> {
    /// Type of the address.
    pub address_type: RedirectAddress,
    /// Address, as text.
    pub address: &'a [u8],
    /// IPv6 address as text, for [`RedirectAddress::V4V6`]; otherwise empty.
    pub other: &'a [u8],
}

/// Type of a redirection address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedirectAddress {
    /// IPv4 address.
    V4 = 0,
    /// IPv6 address.
    V6 = 1,
    /// A URL.
    Url = 2,
    /// SIP URI.
    SipUri = 3,
    /// IPv4 address and IPv6 address.
    V4V6 = 4,
}

impl<'a> Ie<'a> for RedirectInformation<'a> {
    const TYPE: IeType = IeType::REDIRECT_INFORMATION;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let address_type = match octets.u8()? & 0x0f {
            0 => RedirectAddress::V4,
            1 => RedirectAddress::V6,
            2 => RedirectAddress::Url,
            3 => RedirectAddress::SipUri,
            4 => RedirectAddress::V4V6,
            _ => return Err(Cause::MANDATORY_IE_INCORRECT),
        };
        let address = octets.string16()?;
        let both = address_type == RedirectAddress::V4V6;
        let other = if both { octets.string16()? } else { &[] };
        Ok(Self { address_type, address, other })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.address_type as u8);
        put_string16(to, self.address);
        if self.address_type == RedirectAddress::V4V6 {
            put_string16(to, self.other);
        }
    }
}
