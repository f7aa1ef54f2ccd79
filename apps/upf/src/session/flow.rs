//! Flow descriptions: the IPFilterRule of RFC 6733 clause 4.3.1 as TS 29.212 clause 5.4.2 uses it.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

pub use parse::FlowError;

/// An address and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address; bits that do not count are zero.
    pub address: IpAddr,
    /// How many bits count.
    pub length: u8,
}

/// Ranges of ports, both ends included; none means any.
pub type Ports = Vec<(u16, u16)>;

/// `permit out PROTOCOL from REMOTE to LOCAL`: in the direction to the user. Uplink packets are
/// matched with source and destination exchanged (TS 29.244 clause 5.2.1A.2A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowDescription {
    /// The protocol; none for `ip`.
    pub protocol: Option<u8>,
    /// After `from`: the far end. None for `any`.
    pub remote: Option<Prefix>,
    /// Ports of the far end.
    pub remote_ports: Ports,
    /// After `to`: the user's end. None for `any` and `assigned`, whose meaning the PDR's address
    /// of the user gives.
    pub local: Option<Prefix>,
    /// Ports of the user.
    pub local_ports: Ports,
}

impl FlowDescription {
    /// Reads one: `permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]`.
    ///
    /// PROTOCOL is `ip` or a number. ADDRESS is `any`, `assigned`, an IPv4 or IPv6 address, or one
    /// with a length; bits behind the length are ignored, as in RFC 6733. PORTS are numbers and
    /// ranges with commas between them, not more than [`RANGES`](Self::RANGES). `deny`, `in`, `!`
    /// and options are not allowed (TS 29.212 clause 5.4.2).
    ///
    /// # Errors
    /// The first thing that is wrong, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, FlowError> {
        parse::parse(text)
    }

    /// The most ranges of ports on a side.
    pub const RANGES: usize = 32;
    /// The most octets of a description.
    pub const LONGEST: usize = 1024;

    /// Whether every packet of the user is one of these.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

impl Prefix {
    /// Of an address; bits that do not count are made zero. None when it has not so many bits.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) => {
                let behind = 32_u32.checked_sub(length.into())?;
                let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let behind = 128_u32.checked_sub(length.into())?;
                let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Some(Self { address, length })
    }

    /// Whether it is one address.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.length == if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, length } = self;
        if self.is_host() { write!(to, "{address}") } else { write!(to, "{address}/{length}") }
    }
}

/// As [`FlowDescription::parse`] reads it.
impl fmt::Display for FlowDescription {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(protocol) => write!(to, "permit out {protocol}")?,
            None => write!(to, "permit out ip")?,
        }
        to.write_str(" from ")?;
        end(to, self.remote, "any", &self.remote_ports)?;
        to.write_str(" to ")?;
        end(to, self.local, "assigned", &self.local_ports)
    }
}

fn end(
    to: &mut fmt::Formatter<'_>,
    prefix: Option<Prefix>,
    any: &str,
    ports: &[(u16, u16)],
) -> fmt::Result {
    match prefix {
        Some(prefix) => write!(to, "{prefix}")?,
        None => to.write_str(any)?,
    }
    for (place, (first, last)) in ports.iter().enumerate() {
        to.write_str(if place == 0 { " " } else { "," })?;
        if first == last { write!(to, "{first}")? } else { write!(to, "{first}-{last}")? }
    }
    Ok(())
}
