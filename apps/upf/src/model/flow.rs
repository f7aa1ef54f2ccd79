//! Flow descriptions: the IPFilterRule of RFC 6733 clause 4.3.1 as TS 29.212 clause 5.4.2 uses it.

use std::net::IpAddr;

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
