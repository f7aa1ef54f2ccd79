//! The object `app` of the configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::session::{InstanceId, Prefix};

pub(crate) mod addresses;
mod check;
mod defaults;

pub use defaults::{Capacities, defaults};

/// What a UPF is told.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Its Node ID (TS 29.244 clause 8.2.38): an IP address or a domain name.
    pub node_id: String,
    /// The control plane's side.
    pub n4: N4,
    /// The sides of the user plane by name: N3, N9, N6.
    pub interfaces: BTreeMap<String, Interface>,
    /// The port by which packets from user to user go to the lane of the other user: of the driver
    /// `memory`, with `lane-by` `application` where there are several lanes. Default: there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hairpin: Option<String>,
    /// Addresses for users, when this UPF is asked to choose them.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Who chooses tunnel endpoint identifiers.
    #[serde(default)]
    pub teid: TeidChoice,
    /// The most sessions.
    #[serde(default = "sessions")]
    pub sessions: u32,
    /// What a session, and all of them, may use.
    #[serde(default)]
    pub limits: Limits,
    /// How GTP-U is answered.
    #[serde(default)]
    pub gtp: Gtp,
    /// Rules that the control plane activates by name (TS 29.244 clause 8.2.72).
    #[serde(default)]
    pub predefined: BTreeMap<String, Predefined>,
    /// Where the HTTP API and the metrics are served. Default: 127.0.0.1:8805.
    #[serde(default = "api")]
    pub api: Option<SocketAddr>,
}

/// The interface to the control plane.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct N4 {
    /// Where it listens, with the port 8805.
    pub addresses: Vec<IpAddr>,
    /// The UDP port.
    #[serde(default = "n4_port")]
    pub port: u16,
    /// Control plane functions to set associations up with. Others may do so themselves.
    #[serde(default)]
    pub peers: Vec<IpAddr>,
    /// Milliseconds until a request is repeated (T1, TS 29.244 clause 6.4).
    #[serde(default = "t1")]
    pub t1_ms: u64,
    /// How often a request is sent (N1), the first time included.
    #[serde(default = "n1")]
    pub n1: u32,
    /// Seconds between heartbeats.
    #[serde(default = "heartbeat")]
    pub heartbeat_s: u64,
    /// Seconds for which sessions stay when their control plane function is not heard any more.
    #[serde(default)]
    pub keep_sessions_s: u64,
    /// Establishments in a second, above which they are refused (cause 74). Default: no limit.
    #[serde(default)]
    pub establishments_per_s: Option<u32>,
}

/// A side of the user plane.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interface {
    /// The port that its packets arrive by.
    pub port: String,
    /// What it is.
    pub role: Role,
    /// The network instance. Interfaces of one name are one instance.
    pub network_instance: String,
    /// Its GTP-U addresses: of N3 and N9.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Linux's routing table for packets that leave by it. Default: the main table.
    #[serde(default)]
    pub route_table: Option<u32>,
    /// The Ethernet address that everything goes to which leaves by it, as `02:00:00:00:00:02`:
    /// for ports that Linux's routes do not lead out of. Default: as Linux routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
}

/// What a side of the user plane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// GTP-U from and to the access network.
    N3,
    /// GTP-U from and to other UPFs.
    N9,
    /// IP from and to the data network.
    N6,
}

/// Addresses for the users of a network instance.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pool {
    /// The network instance.
    pub network_instance: String,
    /// The addresses: `10.45.0.0/16`, or `2001:db8::/40`, of which each user gets a /64.
    pub prefix: String,
    /// Whether this UPF gives them out. If not, they are only known as users' addresses.
    #[serde(default = "yes")]
    pub allocate: bool,
}

/// Who chooses tunnel endpoint identifiers (TS 29.244 clause 5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TeidChoice {
    /// This UPF (feature FTUP).
    #[default]
    Upf,
    /// The control plane.
    Smf,
}

/// The most of everything.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Limits {
    /// PDRs of a session.
    pub pdrs: usize,
    /// FARs of a session.
    pub fars: usize,
    /// QERs of a session.
    pub qers: usize,
    /// URRs of a session.
    pub urrs: usize,
    /// Filters of a PDR.
    pub filters: usize,
    /// Sessions whose rules need more than a line: several PDRs in a direction, filters, more than
    /// one QER or URR. Default: all, of more than 65536 a quarter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complex_sessions: Option<u32>,
    /// Packets held for a session, unless its BAR says fewer.
    pub held_packets: u32,
    /// Packets held in a lane.
    pub held_packets_per_lane: u32,
    /// Milliseconds for which packets are held, unless the control plane says something else.
    pub held_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pdrs: 32,
            fars: 32,
            qers: 16,
            urrs: 16,
            filters: 16,
            complex_sessions: None,
            held_packets: 64,
            held_packets_per_lane: 1024,
            held_ms: 60_000,
        }
    }
}

/// How GTP-U is answered.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Gtp {
    /// Error indications and notifications in a second, for each lane.
    pub errors_per_s: u32,
    /// Echo responses in a second, for each lane.
    pub echoes_per_s: u32,
    /// ICMP errors in a second, for each lane.
    pub icmp_per_s: u32,
    /// Seconds after the start in which no error indications are sent (TS 23.527 clause 4.2.2).
    pub quiet_s: u64,
    /// Seconds between echo requests to peers; 0 sends none.
    pub probe_s: u64,
    /// Milliseconds until an echo request is repeated (T3-RESPONSE, TS 29.281 clause 11.3).
    pub t3_ms: u64,
    /// How often an echo request is sent until the path counts as failed (N3-REQUESTS).
    pub n3: u32,
}

impl Default for Gtp {
    fn default() -> Self {
        Self {
            errors_per_s: 100,
            echoes_per_s: 1000,
            icmp_per_s: 100,
            quiet_s: 10,
            probe_s: 60,
            t3_ms: 3000,
            n3: 3,
        }
    }
}

/// A rule that the control plane activates by name.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Predefined {
    /// The lowest value is looked at first.
    pub precedence: u32,
    /// Flow descriptions, of which one must match.
    pub flows: Vec<String>,
    /// What becomes of its packets: `drop`, or as the PDR that activates it says.
    #[serde(default)]
    pub drop: bool,
    /// The QoS flow identifier that downlink packets are marked with.
    #[serde(default)]
    pub qfi: Option<u8>,
}

impl Interface {
    /// The Ethernet address of the one next hop, if there is one; of a checked configuration.
    #[must_use]
    pub fn fixed_hop(&self) -> Option<[u8; 6]> {
        self.next_hop.as_deref().and_then(|text| addresses::ethernet(text).ok())
    }
}

impl Pool {
    /// The addresses; none where they are not written as they must be, which a checked
    /// configuration never has.
    #[must_use]
    pub fn parsed(&self) -> Option<Prefix> {
        addresses::prefix(&self.prefix).ok()
    }
}

impl Settings {
    /// The network instances by name, in order: a place here is an [`InstanceId`].
    #[must_use]
    pub fn instances(&self) -> Vec<&str> {
        let of_interfaces = self.interfaces.values().map(|it| it.network_instance.as_str());
        let of_pools = self.pools.iter().map(|it| it.network_instance.as_str());
        let mut names: Vec<&str> = of_interfaces.chain(of_pools).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The interface that decides where packets leave by: of N6, or with tunnels; the first of this
    /// network instance, if one is named.
    #[must_use]
    pub fn leading(&self, instance: Option<InstanceId>, is_n6: bool) -> Option<&Interface> {
        self.interfaces.values().find(|it| {
            let same = |instance| self.instance(&it.network_instance) == Some(instance);
            (it.role == Role::N6) == is_n6 && instance.is_none_or(same)
        })
    }

    /// The network instance of a name.
    #[must_use]
    pub fn instance(&self, name: &str) -> Option<InstanceId> {
        let place = self.instances().binary_search(&name).ok()?;
        InstanceId::try_from(place).ok()
    }
}

const fn sessions() -> u32 {
    16_384
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
const fn api() -> Option<SocketAddr> {
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8805))
}

const fn n4_port() -> u16 {
    8805
}

const fn t1() -> u64 {
    3000
}

const fn n1() -> u32 {
    3
}

const fn heartbeat() -> u64 {
    60
}

const fn yes() -> bool {
    true
}
