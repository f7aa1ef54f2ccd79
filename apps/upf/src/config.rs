//! Configuration of the UPF: the object `app` of the configuration file, and the part of the
//! configuration that follows from it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fastlane::Error;
use fastlane::config::raw::Configuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::check::{check, refuse};
use self::slice_limits::{SliceLimits, SmfLimits};
use crate::session::{InstanceId, Network, Prefix};

pub use self::nat_plan::Nat;
pub use crate::session::Role;

pub(crate) mod addresses;
pub mod change;
mod check;
pub mod nat_plan;
pub mod reloadable;
pub mod running;
pub mod slice_limits;

/// Settings of the UPF.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Node ID (TS 29.244 clause 8.2.38): an IP address or a domain name.
    pub node_id: String,
    /// N4, the interface to the control plane.
    pub n4: N4,
    /// User plane interfaces (N3, N9, N6) by name.
    pub interfaces: BTreeMap<String, Interface>,
    /// Port for packets between UEs, which go to the lane of the receiving UE: of driver `memory`,
    /// with `lane-by` `application` if there are several lanes. Default: such a port is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hairpin: Option<String>,
    /// UE address pools.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Allocator of tunnel endpoint identifiers that is announced. Both are served.
    #[serde(default)]
    pub teid: TeidChoice,
    /// Maximum number of sessions.
    #[serde(default = "sessions")]
    pub sessions: u32,
    /// Number of sessions that the tables have room for: `sessions` can grow to it by `upf reload`.
    /// Default: `sessions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_sessions: Option<u32>,
    /// Limits per session and in total.
    #[serde(default)]
    pub limits: Limits,
    /// Limits of network slices. Slices that are not listed have none of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SliceLimits>,
    /// Rate limits and timers of GTP-U messages.
    #[serde(default)]
    pub gtp: Gtp,
    /// Predefined rules, which the control plane function activates by name (TS 29.244 clause
    /// 8.2.72).
    #[serde(default)]
    pub predefined: BTreeMap<String, Predefined>,
    /// Listening address of the HTTP API and metrics; null disables them. Default: 127.0.0.1:8805.
    #[serde(default = "api")]
    pub api: Option<SocketAddr>,
    /// Stream of usage records for collectors. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_export: Option<UsageExport>,
    /// Names of network instances by [`InstanceId`], also of those that a reload has removed. Empty
    /// before the first reload: the names are then in alphabetical order.
    #[serde(skip)]
    pub numbering: Vec<String>,
}

/// The interface to the control plane.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct N4 {
    /// Local addresses.
    pub addresses: Vec<IpAddr>,
    /// UDP port. Default: 8805.
    #[serde(default = "n4_port")]
    pub port: u16,
    /// Control plane functions to associate with: addresses or domain names. Names are resolved
    /// anew every 10 s.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Prefixes of further control plane functions, which may set up associations themselves, as
    /// `10.40.0.0/24`. Default: `peers` only; without those, any address may.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Milliseconds until a request is retransmitted (T1, TS 29.244 clause 6.4).
    #[serde(default = "t1")]
    pub t1_ms: u64,
    /// Maximum number of transmissions of a request (N1), including the first one.
    #[serde(default = "n1")]
    pub n1: u32,
    /// Seconds between heartbeats.
    #[serde(default = "heartbeat")]
    pub heartbeat_s: u64,
    /// Seconds for which sessions are kept after their control plane function stopped responding.
    #[serde(default)]
    pub keep_sessions_s: u64,
    /// Seconds that SMFs get to move their sessions and to release their associations before the
    /// control plane ends on SIGTERM; 0 ends at once. Default: 15.
    #[serde(default = "release")]
    pub release_s: u64,
    /// Maximum rate of establishments per second, above which they are rejected (cause 74).
    /// Default: no limit.
    #[serde(default)]
    pub establishments_per_s: Option<u32>,
    /// Limits of control plane functions; of several entries that cover one, the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<SmfLimits>,
}

impl N4 {
    /// Returns true if a control plane function may associate from any address.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.allow.is_empty() && self.peers.is_empty()
    }
}

/// A user plane interface.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interface {
    /// Port of its packets.
    pub port: String,
    /// Reference point.
    pub role: Role,
    /// Network instances that it serves. Those of one N6 interface have their UE addresses in
    /// common; interfaces with the same name share one instance. Default: all that no other
    /// interface of the role lists.
    #[serde(default)]
    pub network_instances: Vec<String>,
    /// Local GTP-U addresses, for N3 and N9.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Source addresses of ICMP errors, at most one of a family. Default: those that the port of
    /// N6 has in Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icmp_addresses: Vec<IpAddr>,
    /// Linux routing table for packets that leave by it. Default: the main table.
    #[serde(default)]
    pub route_table: Option<u32>,
    /// Ethernet address to which everything that leaves by it is sent, as `02:00:00:00:00:02`, for
    /// ports without Linux routes. Default: Linux routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// NAT44 of users' packets, for N6. Default: users' addresses leave as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
}

/// UE address pool of a network instance.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pool {
    /// Network instance.
    pub network_instance: String,
    /// Prefix: `10.45.0.0/16`, or `2001:db8::/40`, of which each UE gets a /64.
    pub prefix: String,
    /// True if this UPF allocates the addresses. Otherwise they are only known as UE addresses.
    #[serde(default = "yes")]
    pub allocate: bool,
}

/// Allocator of tunnel endpoint identifiers (TS 29.244 clause 5.5) that this UPF announces. It
/// serves both: those that it allocates are above 2^31, and an SMF that counts stays below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TeidChoice {
    /// This UPF: it announces the feature FTUP.
    #[default]
    Upf,
    /// The SMF: this UPF announces its addresses.
    Smf,
}

/// Limits per session and lane.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Limits {
    /// Maximum number of PDRs per session.
    pub pdrs: usize,
    /// Maximum number of FARs per session.
    pub fars: usize,
    /// Maximum number of QERs per session.
    pub qers: usize,
    /// Maximum number of URRs per session.
    pub urrs: usize,
    /// Maximum number of filters per PDR.
    pub filters: usize,
    /// Maximum number of sessions with complex rules: several PDRs in a direction, filters, more
    /// than one QER or URR. Default: all sessions up to 65536, a quarter of those beyond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complex_sessions: Option<u32>,
    /// Maximum number of held packets per session, unless its BAR has a lower limit.
    pub held_packets: u32,
    /// Maximum number of held packets per lane.
    pub held_packets_per_lane: u32,
    /// Maximum hold time in milliseconds, unless the control plane function sets another one.
    pub held_ms: u64,
    /// Maximum number of outer packets that a lane reassembles at a time, in steps of four; 0
    /// refuses all outer fragments. Each takes 9.5 KiB.
    pub reassemblies_per_lane: u32,
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
            reassemblies_per_lane: 256,
        }
    }
}

/// Rate limits and timers of GTP-U messages.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Gtp {
    /// Maximum rate of error indications and notifications per second and lane.
    pub errors_per_s: u32,
    /// Maximum rate of echo responses per second and lane.
    pub echoes_per_s: u32,
    /// Maximum rate of ICMP errors per second and lane.
    pub icmp_per_s: u32,
    /// Seconds after the start during which no error indications are sent (TS 23.527 clause 4.2.2).
    pub quiet_s: u64,
    /// Seconds between echo requests to peers; 0 sends none.
    pub probe_s: u64,
    /// Milliseconds until an echo request is retransmitted (T3-RESPONSE, TS 29.281 clause 11.3).
    pub t3_ms: u64,
    /// Number of transmissions of an echo request before the path counts as failed (N3-REQUESTS).
    pub n3: u32,
    /// Milliseconds within which all fragments of an outer packet must arrive.
    pub reassembly_ms: u64,
    /// UDP source port of user data that is sent.
    pub udp_source_port: SourcePort,
}

/// UDP source port of user data (TS 29.281 clause 4.4.2.3: the sender chooses it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SourcePort {
    /// The registered port of GTP-U, which every firewall in front of a peer knows.
    #[default]
    #[serde(rename = "2152")]
    Registered,
    /// A port from 49152 on by the flow of the user's packet, so that equal-cost paths and the
    /// queues of receivers share the flows of a tunnel.
    #[serde(rename = "flow")]
    Flow,
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
            reassembly_ms: 1000,
            udp_source_port: SourcePort::Registered,
        }
    }
}

/// Stream of usage records, as lines of JSON.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UsageExport {
    /// Absolute path of the Unix socket on which the control plane listens for collectors.
    pub socket: String,
    /// Seconds between two records of the usage of each session. Default: only usage reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<u32>,
}

/// Predefined rule, which the control plane function activates by name.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Predefined {
    /// Precedence; the lowest value is evaluated first.
    pub precedence: u32,
    /// Flow descriptions, one of which must match.
    pub flows: Vec<String>,
    /// True if its packets are dropped. Otherwise the PDR that activates it decides.
    #[serde(default)]
    pub drop: bool,
    /// QoS flow identifier that downlink packets are marked with.
    #[serde(default)]
    pub qfi: Option<u8>,
}

impl Interface {
    /// Returns the configured next hop, if any, of a checked configuration.
    #[must_use]
    pub fn fixed_hop(&self) -> Option<[u8; 6]> {
        self.next_hop.as_deref().and_then(|text| addresses::ethernet(text).ok())
    }
}

impl Pool {
    /// Returns the prefix; `None` if it is invalid, which a checked configuration never has.
    #[must_use]
    pub fn parsed(&self) -> Option<Prefix> {
        addresses::prefix(&self.prefix).ok()
    }
}

impl Settings {
    /// Returns the number of sessions that the tables have room for. Indices in TEIDs depend on it.
    #[must_use]
    pub fn session_room(&self) -> u32 {
        self.reserved_sessions.unwrap_or(self.sessions).max(self.sessions)
    }

    /// Returns the names of the network instances by their [`InstanceId`]; empty for one that is no
    /// longer configured.
    #[must_use]
    pub fn instances(&self) -> Vec<&str> {
        let used = self.used_instances();
        if self.numbering.is_empty() {
            return used;
        }
        let is_used = |name: &str| used.binary_search(&name).is_ok();
        let names = self.numbering.iter().map(String::as_str);
        names.map(|name| if is_used(name) { name } else { "" }).collect()
    }

    /// Returns the sorted names of the network instances that interfaces and pools have.
    #[must_use]
    pub fn used_instances(&self) -> Vec<&str> {
        let of_interfaces = self.interfaces.values().flat_map(|it| &it.network_instances);
        let of_pools = self.pools.iter().map(|it| it.network_instance.as_str());
        let mut names: Vec<&str> = of_interfaces.map(String::as_str).chain(of_pools).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the interface that routes packets: of N6, or with tunnels. If a network instance is
    /// named it is the first one that lists it, else the first one without a list, else, for
    /// tunnels, the first one.
    #[must_use]
    pub fn leading(&self, instance: Option<InstanceId>, is_n6: bool) -> Option<&Interface> {
        let all = || self.interfaces.values().filter(|it| (it.role == Role::N6) == is_n6);
        let Some(instance) = instance else { return all().next() };
        let names = self.instances();
        let name = names.get(usize::from(instance));
        let lists = |it: &&Interface| it.network_instances.iter().any(|own| Some(&&**own) == name);
        let others = || all().find(|it| it.network_instances.is_empty());
        all().find(lists).or_else(others).or_else(|| all().next().filter(|_| !is_n6))
    }

    /// Returns the network instance with this name.
    #[must_use]
    pub fn instance(&self, name: &str) -> Option<InstanceId> {
        let names = self.instances();
        let index = names.iter().position(|known| !known.is_empty() && *known == name)?;
        InstanceId::try_from(index).ok()
    }

    /// Returns the network instances and our addresses in them.
    #[must_use]
    pub fn network(&self) -> Network {
        let mut network = Network::new(self.instances().into_iter().map(str::to_owned).collect());
        for it in self.interfaces.values() {
            let instances = it.network_instances.iter().filter_map(|name| self.instance(name));
            network.add(it.role, instances.collect(), &it.addresses);
        }
        network.set_n4(&self.n4_user_plane().collect::<Vec<_>>());
        network
    }

    /// Returns the addresses of N4 at which control plane functions exchange user packets with this
    /// process: those that are not of N3 or N9, where lanes do.
    pub fn n4_user_plane(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let own = self.n4.addresses.iter().copied();
        own.filter(|address| !address.is_unspecified() && !self.is_tunnel_address(*address))
    }

    /// Returns true if GTP-U packets to this address are ours: it is configured on N3 or N9.
    #[must_use]
    pub fn is_tunnel_address(&self, address: IpAddr) -> bool {
        self.interfaces.values().any(|it| it.addresses.contains(&address))
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

const fn release() -> u64 {
    15
}

const fn yes() -> bool {
    true
}

/// Linux's main routing table.
const MAIN: u32 = 254;
/// Name of the port for packets between UEs, if none is configured.
const HAIRPIN: &str = "user-to-user";
/// Maximum number of routing tables in the mirror.
const ROUTE_TABLES: usize = 16;

/// Returns the Linux routing tables that packets leave by, main first, which interfaces without a
/// table use.
fn route_tables(settings: &Settings) -> Vec<u32> {
    let mut named: Vec<u32> =
        settings.interfaces.values().filter_map(|it| it.route_table).collect();
    named.retain(|table| *table != MAIN);
    named.sort_unstable();
    named.dedup();
    [vec![MAIN], named].concat()
}

/// Checks the settings against the `written` configuration and returns the rest of the
/// configuration. `tables` are the capacities of the tables by name.
///
/// # Errors
/// Returns the first error with its path.
pub fn defaults(
    settings: &Settings,
    written: &Configuration,
    tables: &[(&'static str, usize)],
) -> Result<Value, Error> {
    check(settings, written)?;
    nat_plan::check_nat(settings)?;
    slice_limits::check(settings)?;
    if let Some((name, _)) = tables.iter().find(|(name, _)| written.tables.contains_key(*name)) {
        let what = "its capacity follows from `app.sessions` and `app.limits`; remove it";
        return Err(refuse(format!("tables.{name}"), what));
    }
    let routes = route_tables(settings);
    if routes.len() > ROUTE_TABLES {
        let count = routes.len();
        let what = format!("they use {count} routing tables, main included; use at most 16");
        return Err(refuse("app.interfaces", what));
    }
    let capacity = |(name, most): &(&str, usize)| ((*name).to_owned(), json!({ "capacity": most }));
    let tables: Map<String, Value> = tables.iter().map(capacity).collect();
    let limits = &settings.limits;
    let hold = json!({
        "packets": limits.held_packets_per_lane,
        "per-key": limits.held_packets.max(1),
    });
    let mut defaults = json!({
        "tables": tables,
        "messages": { "ring-kib": 256 },
        "mirror": { "tables": routes },
        "lanes": { "hold": hold },
    });
    let mut ports = Map::new();
    let is_alone = written.lanes.cpus.as_ref().is_none_or(|cpus| cpus.len() < 2);
    if !is_alone {
        // A session has one lane, whichever port its packets arrive on.
        let of = |port: &String| (port.clone(), json!({ "lane-by": "application" }));
        ports.extend(settings.interfaces.values().map(|it| of(&it.port)));
    }
    if settings.hairpin.is_none() {
        let mut between = json!({ "driver": { "memory": {} } });
        if !is_alone {
            between["lane-by"] = json!("application");
        }
        ports.insert(HAIRPIN.to_owned(), between);
        defaults["app"] = json!({ "hairpin": HAIRPIN });
    }
    if !ports.is_empty() {
        defaults["ports"] = Value::Object(ports);
    }
    Ok(defaults)
}
