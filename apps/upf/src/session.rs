//! A PFCP session and its rules, as the control plane means them.
//!
//! These are the types of the slow half: plain values, made from PFCP requests, stored in the
//! session's record, compiled into what lanes read. Numbers of rules are those of the control
//! plane, unique within their session (TS 29.244 clause 5.2.1).

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

/// The number of a PDR in its session.
pub type PdrId = u16;
/// The number of a FAR in its session.
pub type FarId = u32;
/// The number of a QER in its session.
pub type QerId = u32;
/// The number of a BAR in its session.
pub type BarId = u8;
/// The place of a network instance in the configuration.
pub type InstanceId = u16;

/// Where packets come from (TS 29.244 clause 8.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Source {
    /// From the access network: N3, or N9 from a UPF nearer to it.
    Access = 0,
    /// From the core: N6, or N9 from a UPF nearer to the data network.
    Core = 1,
    /// From a local network beside the data network.
    SgiLan = 2,
    /// From the control plane function (N4-u).
    Control = 3,
}

/// A packet detection rule (TS 29.244 clause 5.2.1, tables 7.5.2.2-1 and 7.5.2.2-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdr {
    /// Its number.
    pub id: PdrId,
    /// The lowest value is looked at first (clause 8.2.11).
    pub precedence: u32,
    /// Where its packets come from.
    pub source: Source,
    /// The network instance that they arrive in, if it was named.
    pub instance: Option<InstanceId>,
    /// The tunnel that they arrive by.
    pub tunnel: Option<LocalTunnel>,
    /// The user's addresses that they have as their source or destination.
    pub user: Option<UserAddress>,
    /// Networks behind the user (clause 5.16): prefix and length, IPv4 or IPv6.
    pub framed: Vec<Prefix>,
    /// If there are any, one of them must match.
    pub filters: Vec<Filter>,
    /// If there are any, one of them must be the packet's.
    pub qfis: Vec<u8>,
    /// What of the outside is taken off.
    pub removal: Option<Removal>,
    /// What becomes of its packets.
    pub far: FarId,
    /// All of them are applied.
    pub qers: Vec<QerId>,
    /// All of them count.
    pub urrs: Vec<UrrId>,
    /// The predefined rules that were activated, by name.
    pub predefined: Vec<String>,
}

/// A tunnel endpoint of ours (F-TEID, clause 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTunnel {
    /// The tunnel endpoint identifier.
    pub teid: u32,
    /// Our IPv4 address of it.
    pub v4: Option<Ipv4Addr>,
    /// Our IPv6 address of it.
    pub v6: Option<Ipv6Addr>,
    /// Whether this UPF chose it, which then also frees it.
    pub is_ours: bool,
}

/// A user's addresses in a network instance (clause 8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserAddress {
    /// The IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 prefix, and its length in bits (64 unless something else was said).
    pub v6: Option<(Ipv6Addr, u8)>,
    /// Whether this UPF took them from a pool of its own, to which they then return.
    pub is_ours: bool,
}

/// A service data flow filter (clause 8.2.5): all that is there must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its number, by which other PDRs of the session can refer to it.
    pub id: Option<u32>,
    /// The 5-tuple.
    pub flow: Option<FlowDescription>,
    /// Type of service or traffic class: value and mask.
    pub tos: Option<(u8, u8)>,
    /// Security parameter index of IPsec.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
}

/// What is taken off (clause 8.2.64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The description: 0 GTP-U/UDP/IPv4, 1 GTP-U/UDP/IPv6, 2 UDP/IPv4, 3 UDP/IPv6, 4 IPv4,
    /// 5 IPv6, 6 GTP-U/UDP/IP.
    pub description: u8,
    /// Whether the PDU session container goes too (octet 6, bit 1).
    pub extension: bool,
}
