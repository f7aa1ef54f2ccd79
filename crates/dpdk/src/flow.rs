//! Steering by the device: rules as `rte_flow`.
//!
//! The device marks the packets that it claims. Packets without the mark go through the Rust
//! matcher, so a device can only save work and never lose a packet. VLAN-tagged packets, whose tags
//! the rules skip, are left to the matcher.

use std::fmt;
use std::net::IpAddr;

use fastlane_steer::{PortRange, Prefix, Rule, Rules};

use crate::plugin::{FlowRule, fields};

/// The part of the system that applies the steering rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Nothing: there are no rules, and every packet is claimed.
    Everything,
    /// The device, by `rte_flow`, for the packets that it recognizes; the Rust matcher for the
    /// others.
    Device,
    /// The Rust matcher, because the device refused the rules.
    Software {
        /// Error of the device.
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

/// Offers the rules to a device, which takes all of them or none.
pub(crate) fn offer(
    rules: &Rules,
    device: impl FnOnce(&[FlowRule]) -> Result<(), String>,
) -> Steering {
    if rules.is_empty() {
        return Steering::Everything;
    }
    let flow: Vec<_> = rules.as_slice().iter().flat_map(flow_rules).collect();
    match device(&flow) {
        Ok(()) => Steering::Device,
        Err(reason) => Steering::Software { reason },
    }
}

/// Translates a rule for the device: one flow rule per IP version that it can match, or a single
/// one if it concerns Ethernet alone.
fn flow_rules(rule: &Rule) -> Vec<FlowRule> {
    let mut flow = FlowRule::default();
    let range = rule.udp_port.or(rule.tcp_port);
    let range = if rule.gtp_u { Some(PortRange::from(GTP_U_PORT)) } else { range };
    if let Some(range) = range {
        flow.fields |= fields::PORT;
        (flow.first_port, flow.last_port) = (range.first.to_be_bytes(), range.last.to_be_bytes());
    }
    let transport = match () {
        () if rule.tcp_port.is_some() => Some(TCP),
        () if range.is_some() => Some(UDP),
        () => rule.protocol,
    };
    if let Some(protocol) = transport {
        flow.fields |= fields::PROTOCOL;
        flow.protocol = protocol;
    }
    if rule.gtp_u {
        flow.fields |= fields::GTP_U;
    }
    if let Some(ethertype) = rule.ethertype {
        flow.fields |= fields::ETHERTYPE;
        flow.ethertype = ethertype.to_be_bytes();
    }
    (flow.source, flow.source_mask) = masked(rule.source);
    (flow.destination, flow.destination_mask) = masked(rule.destination);
    let with_version = |version| FlowRule { version, ..flow };
    let address = rule.source.or(rule.destination).map(|prefix| prefix.address);
    match (address, rule.ethertype, transport) {
        (Some(IpAddr::V4(_)), ..) | (_, Some(IPV4), _) => vec![with_version(4)],
        (Some(IpAddr::V6(_)), ..) | (_, Some(IPV6), _) => vec![with_version(6)],
        (_, _, Some(_)) => vec![with_version(4), with_version(6)],
        (_, _, None) => vec![with_version(0)],
    }
}

/// Returns the address of a prefix and its mask, in network byte order.
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
