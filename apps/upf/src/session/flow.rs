//! SDF filters and flow descriptions: the IPFilterRule of RFC 6733 clause 4.3.1 as TS 29.212 clause
//! 5.4.2 uses it.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

pub use parse::FlowError;

/// IP prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Network address; bits beyond the length are zero.
    pub address: IpAddr,
    /// Length in bits.
    pub length: u8,
}

/// Inclusive port ranges; empty matches all ports.
pub type Ports = Vec<(u16, u16)>;

/// Flow description `permit out PROTOCOL from REMOTE to LOCAL`, in downlink direction. For uplink
/// packets source and destination are exchanged (TS 29.244 clause 5.2.1A.2A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowDescription {
    /// IP protocol; none for `ip`.
    pub protocol: Option<u8>,
    /// Remote prefix, after `from`; none for `any`.
    pub remote: Option<Prefix>,
    /// Remote ports.
    pub remote_ports: Ports,
    /// UE prefix, after `to`; none for `any` and `assigned`. The UE address of the PDR replaces
    /// `assigned`.
    pub local: Option<Prefix>,
    /// UE ports.
    pub local_ports: Ports,
}

impl FlowDescription {
    /// Parses `permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]`.
    ///
    /// PROTOCOL is `ip` or a number. ADDRESS is `any`, `assigned`, an IPv4 or IPv6 address, or a
    /// prefix; bits beyond the prefix length are ignored, as in RFC 6733. PORTS are comma-separated
    /// numbers and ranges, up to [`RANGES`](Self::RANGES). `deny`, `in`, `!` and options are
    /// refused (TS 29.212 clause 5.4.2).
    ///
    /// # Errors
    /// Returns the first error, with the correct form.
    pub fn parse(text: &str) -> Result<Self, FlowError> {
        parse::parse(text)
    }

    /// Maximum number of port ranges per side.
    pub const RANGES: usize = 32;
    /// Maximum length of a description in octets.
    pub const LONGEST: usize = 1024;

    /// Returns true if every packet of the UE matches.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

impl Prefix {
    /// Creates a prefix with the bits beyond `length` cleared. Returns `None` if `length` exceeds
    /// the address size.
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

    /// Returns true if the prefix is a single address.
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

/// Writes the form that [`FlowDescription::parse`] reads.
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
