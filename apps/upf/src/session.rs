//! A PFCP session and its rules, as the control plane describes them.
//!
//! These are plain values: read from PFCP requests, stored in the session's record and compiled
//! into the rules that lanes read. Rule IDs are those of the control plane and unique within their
//! session (TS 29.244 clause 5.2.1).

mod action;
mod flow;
mod progress;
mod session;
mod usage;
mod watch;

use std::net::{Ipv4Addr, Ipv6Addr};

pub use action::{
    Actions, Buffering, Destination, EndMarker, Far, Forwarding, Gate, OuterHeader, Qer, Rate,
    Redirect,
};
pub use flow::{FlowDescription, FlowError, Ports, Prefix};
pub use progress::{
    DownlinkData, Progress, Reporting, Split, Unacknowledged, UsageReport, UsageTriggers,
};
pub use session::{CpSeid, Session, SessionId};
pub use usage::{Measure, Quota, ReportTriggers, Urr, UrrId, Volume};
pub use watch::Watch;

/// PDR ID, unique in its session.
pub type PdrId = u16;
/// FAR ID, unique in its session.
pub type FarId = u32;
/// QER ID, unique in its session.
pub type QerId = u32;
/// BAR ID, unique in its session.
pub type BarId = u8;
/// Index of a network instance in the configuration.
pub type InstanceId = u16;

/// Source Interface (TS 29.244 clause 8.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Source {
    /// Access network: N3, or N9 from a UPF closer to it.
    Access = 0,
    /// Core: N6, or N9 from a UPF closer to the data network.
    Core = 1,
    /// SGi-LAN or N6-LAN: a local network beside the data network.
    SgiLan = 2,
    /// Control plane function (N4-u).
    Control = 3,
}

/// A packet detection rule (TS 29.244 clause 5.2.1, tables 7.5.2.2-1 and 7.5.2.2-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdr {
    /// PDR ID.
    pub id: PdrId,
    /// Precedence; the lowest value is matched first (clause 8.2.11).
    pub precedence: u32,
    /// Source Interface of its packets.
    pub source: Source,
    /// Network instance in which the packets arrive, if given.
    pub instance: Option<InstanceId>,
    /// Local F-TEID by which the packets arrive.
    pub tunnel: Option<LocalTunnel>,
    /// UE addresses that the packets have as source or destination.
    pub user: Option<UserAddress>,
    /// Framed routes behind the UE (clause 5.16), IPv4 or IPv6.
    pub framed: Vec<Prefix>,
    /// SDF filters, of which one must match; empty matches all.
    pub filters: Vec<Filter>,
    /// QFIs, of which one must be the packet's; empty matches all.
    pub qfis: Vec<u8>,
    /// Outer header to remove.
    pub removal: Option<Removal>,
    /// FAR for its packets.
    pub far: FarId,
    /// QERs, all of which apply.
    pub qers: Vec<QerId>,
    /// URRs, all of which count.
    pub urrs: Vec<UrrId>,
    /// Names of activated predefined rules.
    pub predefined: Vec<String>,
}

/// Local F-TEID (clause 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTunnel {
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Our IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Our IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// This UPF allocated the TEID and also frees it.
    pub is_ours: bool,
}

/// UE addresses in a network instance (clause 8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserAddress {
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 prefix and its length in bits, 64 by default.
    pub v6: Option<(Ipv6Addr, u8)>,
    /// This UPF allocated the addresses from a pool, to which they return.
    pub is_ours: bool,
}

/// Service data flow filter (clause 8.2.5). All present parts must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// SDF Filter ID, by which other PDRs of the session can refer to it.
    pub id: Option<u32>,
    /// Flow description: the 5-tuple.
    pub flow: Option<FlowDescription>,
    /// Type of service or traffic class: value and mask.
    pub tos: Option<(u8, u8)>,
    /// Security parameter index of IPsec.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
}

/// Outer Header Removal (clause 8.2.64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Description: 0 GTP-U/UDP/IPv4, 1 GTP-U/UDP/IPv6, 2 UDP/IPv4, 3 UDP/IPv6, 4 IPv4, 5 IPv6, 6
    /// GTP-U/UDP/IP.
    pub description: u8,
    /// The PDU session container is removed too (octet 6, bit 1).
    pub extension: bool,
}
