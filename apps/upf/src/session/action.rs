//! Forwarding action rules, buffering action rules and QoS enforcement rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{BarId, FarId, InstanceId, QerId};

/// Forwarding action rule (TS 29.244 table 7.5.2.3-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Far {
    /// FAR ID.
    pub id: FarId,
    /// Apply Action flags.
    pub actions: Actions,
    /// Forwarding parameters, if packets are forwarded.
    pub forwarding: Option<Forwarding>,
    /// Duplicating parameters: the destinations of copies.
    pub duplicating: Vec<Forwarding>,
    /// BAR, if packets are buffered.
    pub bar: Option<BarId>,
    /// End marker due at the tunnel that packets took before (SNDEM, clause 8.2.70).
    pub end_marker: Option<EndMarker>,
}

/// End marker, sent once by the lane after its last packet to the old tunnel (TS 23.501 clause
/// 5.8.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Old tunnel.
    pub to: OuterHeader,
    /// Network instance of the old tunnel, if given.
    pub instance: Option<InstanceId>,
    /// Version of the session in which the end marker became due.
    pub version: u64,
}

/// Apply Action (clause 8.2.26).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// DROP.
    pub drop: bool,
    /// FORW.
    pub forward: bool,
    /// BUFF.
    pub buffer: bool,
    /// NOCP: notify the control plane of the first buffered packet.
    pub notify: bool,
    /// DUPL.
    pub duplicate: bool,
}

/// Destination Interface (clause 8.2.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Destination {
    /// Access network.
    Access = 0,
    /// Core.
    Core = 1,
    /// SGi-LAN or N6-LAN: a local network beside the data network.
    SgiLan = 2,
    /// Control plane function (N4-u).
    Control = 3,
}

/// Forwarding and duplicating parameters (tables 7.5.2.3-2 and 7.5.2.3-3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Destination Interface.
    pub destination: Destination,
    /// Network instance in which packets leave, if given.
    pub instance: Option<InstanceId>,
    /// Outer header to add.
    pub outer: Option<OuterHeader>,
    /// Type of service or traffic class of the outer header: value and mask (clause 8.2.12).
    pub marking: Option<(u8, u8)>,
    /// Redirect information for HTTP requests (clause 8.2.20).
    pub redirect: Option<Redirect>,
}

/// Outer Header Creation (clause 8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeader {
    /// TEID of the peer; none for plain UDP or IP.
    pub teid: Option<u32>,
    /// IPv4 address of the peer.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the peer, used if there is no IPv4 address.
    pub v6: Option<Ipv6Addr>,
    /// UDP port, for plain UDP.
    pub port: Option<u16>,
}

/// Redirect information (clause 8.2.20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// HTTP requests are redirected to this address. Packets to and from it pass.
    Address(IpAddr),
    /// Redirect addresses for IPv4 and for IPv6 packets.
    Both(Ipv4Addr, Ipv6Addr),
    /// HTTP requests are redirected to this URL (RFC 9110 clause 15.4.3).
    Url(String),
    /// SIP URI: stored, without effect.
    Sip(String),
}

/// Buffering action rule (table 7.5.2.6-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffering {
    /// BAR ID.
    pub id: BarId,
    /// Delay from the first packet to the downlink data notification, in ms (clause 8.2.28: units
    /// of 50 ms).
    pub notification_delay_ms: u32,
    /// Maximum number of buffered packets (Suggested Buffering Packets Count, clause 8.2.100).
    pub packets: Option<u32>,
    /// Maximum buffering time in ms (DL Buffering Duration of a report response, clause 8.2.47).
    pub duration_ms: Option<u64>,
}

/// Gate Status of one direction (clause 8.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Packets pass.
    #[default]
    Open,
    /// Packets are dropped.
    Closed,
}

/// Bit rates in kbit/s, with 1 kbit = 1000 bits (clauses 8.2.8 and 8.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Uplink rate.
    pub uplink: u64,
    /// Downlink rate.
    pub downlink: u64,
}

/// QoS enforcement rule (table 7.5.2.5-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qer {
    /// QER ID.
    pub id: QerId,
    /// QER Correlation ID, for a meter shared by sessions in EPC. N4 has none (table 7.5.2.5-1): it
    /// is shown and not applied.
    pub correlation: Option<u32>,
    /// Uplink gate.
    pub uplink: Gate,
    /// Downlink gate.
    pub downlink: Gate,
    /// Maximum bit rate; none is unlimited.
    pub maximum: Option<Rate>,
    /// Guaranteed bit rate: stored and reported, never policed.
    pub guaranteed: Option<Rate>,
    /// QFI with which downlink packets are marked.
    pub qfi: Option<u8>,
    /// Downlink packets carry the reflective QoS indication.
    pub reflective: bool,
    /// Paging policy indicator, 0 to 7.
    pub paging_policy: Option<u8>,
    /// Averaging window of a GBR flow in ms: the burst that the meter allows.
    pub window_ms: Option<u32>,
    /// Lane state slot with its meter, once assigned.
    pub line: u32,
}
