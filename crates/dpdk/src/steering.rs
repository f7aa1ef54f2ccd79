//! Steering by the device itself: rules as `rte_flow`.
//!
//! The device marks what it claims. What it does not mark is judged in Rust, so a device can only
//! save work, never lose a packet: VLAN tags, which the rules step over, are left to Rust.

use std::fmt;
use std::net::IpAddr;

use fastlane_steer::{PortRange, Prefix, Rule, Rules};

use crate::plugin::{FlatRule, fields};

/// Who says what is fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// There are no rules: everything is.
    Everything,
    /// The device, by `rte_flow`, for all that it recognises; Rust for the rest.
    Device,
    /// Rust, because the device does not take the rules.
    Software {
        /// What the device said.
        reason: String,
    },
}

impl fmt::Display for Steering {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => formatter.write_str("everything"),
            Self::Device => formatter.write_str("rte_flow"),
            Self::Software { reason } => write!(formatter, "software (rte_flow: {reason})"),
        }
    }
}

/// EtherTypes (IEEE 802 numbers), IP protocols (IANA), the UDP port of GTP-U (3GPP TS 29.281
/// 4.4.2).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const GTP_U_PORT: u16 = 2152;

/// Gives the rules to a device: all, or none.
pub(crate) fn give(
    rules: &Rules,
    device: impl FnOnce(&[FlatRule]) -> Result<(), String>,
) -> Steering {
    if rules.is_empty() {
        return Steering::Everything;
    }
    let flat: Vec<_> = rules.as_slice().iter().flat_map(flatten).collect();
    match device(&flat) {
        Ok(()) => Steering::Device,
        Err(reason) => Steering::Software { reason },
    }
}

/// A rule as the device sees it: once for each version of IP that it may mean, unless it is about
/// Ethernet alone.
fn flatten(rule: &Rule) -> Vec<FlatRule> {
    let mut flat = FlatRule::default();
    let range = rule.udp_port.or(rule.tcp_port);
    let range = if rule.gtp_u { Some(PortRange::from(GTP_U_PORT)) } else { range };
    if let Some(range) = range {
        flat.fields |= fields::PORT;
        (flat.first_port, flat.last_port) = (range.first.to_be_bytes(), range.last.to_be_bytes());
    }
    let transport = match () {
        () if rule.tcp_port.is_some() => Some(TCP),
        () if range.is_some() => Some(UDP),
        () => rule.protocol,
    };
    if let Some(protocol) = transport {
        flat.fields |= fields::PROTOCOL;
        flat.protocol = protocol;
    }
    if rule.gtp_u {
        flat.fields |= fields::GTP_U;
    }
    if let Some(ethertype) = rule.ethertype {
        flat.fields |= fields::ETHERTYPE;
        flat.ethertype = ethertype.to_be_bytes();
    }
    (flat.source, flat.source_mask) = masked(rule.source);
    (flat.destination, flat.destination_mask) = masked(rule.destination);
    let of = |version| FlatRule { version, ..flat };
    let address = rule.source.or(rule.destination).map(|prefix| prefix.address);
    match (address, rule.ethertype, transport) {
        (Some(IpAddr::V4(_)), ..) | (_, Some(IPV4), _) => vec![of(4)],
        (Some(IpAddr::V6(_)), ..) | (_, Some(IPV6), _) => vec![of(6)],
        (_, _, Some(_)) => vec![of(4), of(6)],
        (_, _, None) => vec![of(0)],
    }
}

/// The address of a prefix and its mask, in network byte order.
fn masked(prefix: Option<Prefix>) -> ([u8; 16], [u8; 16]) {
    let (mut address, mut mask) = ([0; 16], [0; 16]);
    let Some(prefix) = prefix else { return (address, mask) };
    match prefix.address {
        IpAddr::V4(v4) => address[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => address = v6.octets(),
    }
    let ones = u128::MAX.checked_shl(128 - u32::from(prefix.length)).unwrap_or(0);
    mask.copy_from_slice(&ones.to_be_bytes());
    (address, mask)
}

#[cfg(test)]
mod tests;
