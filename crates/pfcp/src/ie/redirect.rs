//! Where traffic is redirected to (TS 29.244 clause 8.2.20).

use alloc::vec::Vec;

use super::{Ie, put_string16};
use crate::octets::Octets;
use crate::{Cause, IeType};

/// Redirect Information: where packets go instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RedirectInformation<'a> {
    /// The kind of address.
    pub address_type: RedirectAddress,
    /// The address, as text.
    pub address: &'a [u8],
    /// For [`RedirectAddress::V4V6`], the IPv6 address, as text; else nothing.
    pub other: &'a [u8],
}

/// The kind of address that traffic is redirected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedirectAddress {
    /// An IPv4 address.
    V4 = 0,
    /// An IPv6 address.
    V6 = 1,
    /// A URL.
    Url = 2,
    /// A SIP URI.
    SipUri = 3,
    /// An IPv4 and an IPv6 address.
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
