//! What becomes of packets: FARs and BARs, and what QERs allow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{BarId, FarId, InstanceId, QerId};

/// A forwarding action rule (TS 29.244 table 7.5.2.3-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Far {
    /// Its number.
    pub id: FarId,
    /// What is done.
    pub actions: Actions,
    /// How packets are forwarded, if they are.
    pub forwarding: Option<Forwarding>,
    /// Where copies go, if packets are duplicated.
    pub duplicating: Vec<Forwarding>,
    /// The buffering rule, if packets are held.
    pub bar: Option<BarId>,
    /// An end marker that is due at the tunnel that packets left by before (SNDEM, clause 8.2.70).
    pub end_marker: Option<EndMarker>,
}

/// The lane sends it once, after its last packet to that tunnel (TS 23.501 clause 5.8.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// The tunnel.
    pub to: OuterHeader,
    /// The network instance that it is reached in, if it was named.
    pub instance: Option<InstanceId>,
    /// The version of the session in which it became due.
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
    /// NOCP: tell the control plane of the first packet that is held.
    pub notify: bool,
    /// DUPL.
    pub duplicate: bool,
}

/// Where packets are forwarded to (Destination Interface, clause 8.2.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Destination {
    /// To the access network.
    Access = 0,
    /// To the core.
    Core = 1,
    /// To a local network beside the data network.
    SgiLan = 2,
    /// To the control plane function (N4-u).
    Control = 3,
}

/// Forwarding and duplicating parameters (tables 7.5.2.3-2 and 7.5.2.3-3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// The side they leave by.
    pub destination: Destination,
    /// The network instance that they leave in, if it was named.
    pub instance: Option<InstanceId>,
    /// What is put on.
    pub outer: Option<OuterHeader>,
    /// Type of service or traffic class of the outer header: value and mask (clause 8.2.12).
    pub marking: Option<(u8, u8)>,
    /// Where web requests are sent instead (clause 8.2.20).
    pub redirect: Option<Redirect>,
}

/// An outer header to put on (clause 8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeader {
    /// The tunnel of the far end; none for plain UDP or IP.
    pub teid: Option<u32>,
    /// The far end's IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// The far end's IPv6 address; used when there is no IPv4 address.
    pub v6: Option<Ipv6Addr>,
    /// The UDP port, for plain UDP.
    pub port: Option<u16>,
}

/// Redirect information (clause 8.2.20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Web requests are answered with this address; packets to and from it go on.
    Address(IpAddr),
    /// As an address: packets of IPv4 have the first, those of IPv6 the second.
    Both(Ipv4Addr, Ipv6Addr),
    /// Web requests are answered with this address (RFC 9110 clause 15.4.3).
    Url(String),
    /// A SIP URI: stored, not acted on.
    Sip(String),
}

/// A buffering action rule (table 7.5.2.6-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffering {
    /// Its number.
    pub id: BarId,
    /// How long after the first packet the control plane is told, in ms (clause 8.2.28: units of
    /// 50 ms).
    pub notification_delay_ms: u32,
    /// The most packets held (suggested buffering packets count, clause 8.2.100).
    pub packets: Option<u32>,
    /// How long at most, in ms (DL buffering duration of a report's answer, clause 8.2.47).
    pub duration_ms: Option<u64>,
}

/// Whether a gate lets packets pass (clause 8.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// They pass.
    #[default]
    Open,
    /// They are dropped.
    Closed,
}

/// Uplink and downlink in kbit/s, 1 kbit being 1000 bits (clauses 8.2.8 and 8.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// From the user.
    pub uplink: u64,
    /// To the user.
    pub downlink: u64,
}

/// A QoS enforcement rule (table 7.5.2.5-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qer {
    /// Its number.
    pub id: QerId,
    /// For a meter that sessions share, which EPC has and N4 has not (table 7.5.2.5-1): it is shown
    /// and not applied.
    pub correlation: Option<u32>,
    /// The gate for uplink packets.
    pub uplink: Gate,
    /// The gate for downlink packets.
    pub downlink: Gate,
    /// The maximum bit rate; none is unlimited.
    pub maximum: Option<Rate>,
    /// The guaranteed bit rate: stored and reported, it never polices.
    pub guaranteed: Option<Rate>,
    /// The QoS flow identifier that downlink packets are marked with.
    pub qfi: Option<u8>,
    /// Whether downlink packets carry the reflective QoS indication.
    pub reflective: bool,
    /// The paging policy indicator, 0 to 7.
    pub paging_policy: Option<u8>,
    /// The averaging window in ms, of a GBR flow: the burst that the meter allows.
    pub window_ms: Option<u32>,
    /// The line of state that has its meter, once it has one.
    pub line: u32,
}
