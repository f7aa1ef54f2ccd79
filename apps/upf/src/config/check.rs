//! Validation of the settings. Each error names the path, the reason and the remedy.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use fastlane::Error;
use fastlane::config::nearest;
use fastlane::config::raw::Configuration;

use super::addresses::{contains, ethernet, overlap, prefix, unfit};
use super::{Interface, Limits, N4, Pool, Predefined, Role, Settings, UsageExport};
use crate::session::{FlowDescription, Prefix};

/// Maximum number of sessions: the session index takes 22 of the 32 bits of a TEID.
const MAX_SESSIONS: u32 = 1 << 22;
/// Maximum number of interfaces, pools and addresses: lanes search them linearly.
const MAX_ENTRIES: usize = 64;
/// Maximum length of an IPv6 pool prefix; each UE gets a /64.
const USER_BITS: u8 = 64;
/// Maximum release period in seconds: a day.
const MAX_RELEASE_S: u64 = 86_400;
/// Maximum length of the path of a Unix socket (unix(7)), in octets.
const SOCKET_PATH: usize = 107;
/// Maximum number of GTP-U addresses per interface.
const MAX_ADDRESSES: usize = 16;

/// Returns the error for an invalid value.
pub(super) fn refuse(path: impl Into<String>, what: impl Into<String>) -> Error {
    Error::Value { path: path.into(), what: what.into(), meant: None }
}

/// Returns the error for an unknown name.
fn unknown<'a>(
    path: String,
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Error {
    let meant = nearest(name, names.clone());
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    let what = format!("there is no {what} `{name}`; there are {}", names.join(", "));
    Error::Value { path, what, meant }
}

/// Checks that a value is within its bounds.
pub(super) fn within<T: PartialOrd + Display>(
    path: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), Error> {
    if (&low..=&high).contains(&&value) {
        return Ok(());
    }
    Err(refuse(path, format!("{value} is not allowed; write {low} to {high}")))
}

/// Checks all settings.
pub(super) fn check(settings: &Settings, written: &Configuration) -> Result<(), Error> {
    check_node_name("app.node-id", &settings.node_id)?;
    check_n4(&settings.n4)?;
    check_interfaces(&settings.interfaces, written)?;
    check_pools(settings)?;
    within("app.sessions", settings.sessions, 1, MAX_SESSIONS)?;
    if let Some(reserved) = settings.reserved_sessions {
        within("app.reserved-sessions", reserved, settings.sessions, MAX_SESSIONS)?;
    }
    check_limits(&settings.limits, settings.session_room())?;
    within("app.gtp.reassembly-ms", settings.gtp.reassembly_ms, 1, 60_000)?;
    for (name, rule) in &settings.predefined {
        check_predefined(name, rule)?;
    }
    settings.usage_export.as_ref().map_or(Ok(()), check_export)
}

/// Checks the stream of usage records.
fn check_export(export: &UsageExport) -> Result<(), Error> {
    let path = &export.socket;
    if !path.starts_with('/') || path.len() > SOCKET_PATH || path.contains('\0') {
        let what = format!(
            "`{path}` is no path of a socket; write an absolute one of at most {SOCKET_PATH} octets"
        );
        return Err(refuse("app.usage-export.socket", what));
    }
    let interval = export.interval_s.unwrap_or(1);
    within("app.usage-export.interval-s", interval, 1, 86_400)
}

fn check_limits(limits: &Limits, sessions: u32) -> Result<(), Error> {
    let rules = [
        ("pdrs", limits.pdrs, 2, 256),
        ("fars", limits.fars, 1, 256),
        ("qers", limits.qers, 1, 64),
        ("urrs", limits.urrs, 1, 64),
        ("filters", limits.filters, 1, 64),
    ];
    for (key, value, low, high) in rules {
        within(&format!("app.limits.{key}"), value, low, high)?;
    }
    if let Some(complex) = limits.complex_sessions {
        within("app.limits.complex-sessions", complex, 1, sessions)?;
    }
    let most = limits.held_packets_per_lane;
    within("app.limits.held-packets-per-lane", most, 0, 1 << 20)?;
    within("app.limits.held-ms", limits.held_ms, 1, 86_400_000)?;
    let most_reassembled = limits.reassemblies_per_lane;
    within("app.limits.reassemblies-per-lane", most_reassembled, 0, 1 << 16)?;
    if limits.held_packets > most {
        let what = format!(
            "{} exceeds the limit of a lane, {most} \
             (held-packets-per-lane); write at most that",
            limits.held_packets
        );
        return Err(refuse("app.limits.held-packets", what));
    }
    Ok(())
}

/// Checks the name of a node: an address or a domain name (TS 29.244 clause 8.2.38, RFC 1035
/// clause 2.3.1).
pub(super) fn check_node_name(path: &str, id: &str) -> Result<(), Error> {
    if id.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(plain);
    // Digits and dots alone are a mistyped address.
    let digits = id.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    if id.len() <= 253 && !digits && id.split('.').all(label) {
        return Ok(());
    }
    let what = format!("`{id}` is neither an IP address nor a domain name; write one of them");
    Err(refuse(path, what))
}

/// Checks a predefined rule.
fn check_predefined(name: &str, rule: &Predefined) -> Result<(), Error> {
    let at = |key: &str| format!("app.predefined.{name}.{key}");
    if rule.qfi.is_some_and(|qfi| qfi > 63) {
        return Err(refuse(at("qfi"), "a QoS flow identifier has 6 bits; write 0 to 63"));
    }
    for (index, flow) in rule.flows.iter().enumerate() {
        FlowDescription::parse(flow).map_err(|error| {
            refuse(format!("{}.{index}", at("flows")), format!("`{flow}`: {error}"))
        })?;
    }
    Ok(())
}

fn check_n4(n4: &N4) -> Result<(), Error> {
    if n4.addresses.is_empty() || n4.addresses.len() > MAX_ENTRIES {
        let what = format!(
            "peers need an address to send to; {} are configured; write 1 to {MAX_ENTRIES}",
            n4.addresses.len()
        );
        return Err(refuse("app.n4.addresses", what));
    }
    check_addresses("app.n4.addresses", &n4.addresses)?;
    check_peers(&n4.peers)?;
    check_allow(&n4.allow)?;
    if n4.port == 0 {
        return Err(refuse("app.n4.port", "0 is no port; leave it out for 8805"));
    }
    within("app.n4.t1-ms", n4.t1_ms, 10, 60_000)?;
    within("app.n4.n1", n4.n1, 1, 10)?;
    within("app.n4.heartbeat-s", n4.heartbeat_s, 1, 3600)?;
    within("app.n4.release-s", n4.release_s, 0, MAX_RELEASE_S)?;
    if n4.establishments_per_s == Some(0) {
        let what = "0 would refuse every session; write a number of at least 1, or leave it out";
        return Err(refuse("app.n4.establishments-per-s", what));
    }
    Ok(())
}

/// Checks the control plane functions to associate with.
fn check_peers(peers: &[String]) -> Result<(), Error> {
    if peers.len() > MAX_ENTRIES {
        let what = format!("{} are configured; write at most {MAX_ENTRIES}", peers.len());
        return Err(refuse("app.n4.peers", what));
    }
    for (index, peer) in peers.iter().enumerate() {
        let path = format!("app.n4.peers.{index}");
        check_node_name(&path, peer)?;
        if let Some(reason) = peer.parse().ok().and_then(unfit) {
            return Err(refuse(path, format!("{peer} {reason}")));
        }
        if peers[..index].iter().any(|other| other.eq_ignore_ascii_case(peer)) {
            return Err(refuse(path, format!("{peer} is named twice; name it once")));
        }
    }
    Ok(())
}

/// Checks the prefixes of control plane functions.
fn check_allow(prefixes: &[String]) -> Result<(), Error> {
    if prefixes.len() > MAX_ENTRIES {
        let what = format!("{} are configured; write at most {MAX_ENTRIES}", prefixes.len());
        return Err(refuse("app.n4.allow", what));
    }
    for (index, text) in prefixes.iter().enumerate() {
        prefix(text).map_err(|what| refuse(format!("app.n4.allow.{index}"), what))?;
    }
    Ok(())
}

fn check_addresses(path: &str, addresses: &[IpAddr]) -> Result<(), Error> {
    for (index, address) in addresses.iter().enumerate() {
        if let Some(reason) = unfit(*address) {
            return Err(refuse(path, format!("{address} {reason}")));
        }
        if addresses[..index].contains(address) {
            return Err(refuse(path, format!("{address} is named twice; name it once")));
        }
    }
    Ok(())
}

/// Checks the interfaces against the ports of the configuration.
fn check_interfaces(
    interfaces: &BTreeMap<String, Interface>,
    written: &Configuration,
) -> Result<(), Error> {
    if interfaces.is_empty() || interfaces.len() > MAX_ENTRIES {
        let what = format!("{} are configured; write 1 to {MAX_ENTRIES}", interfaces.len());
        return Err(refuse("app.interfaces", what));
    }
    let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
    let mut cores: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, interface) in interfaces {
        let at = |key: &str| format!("app.interfaces.{name}.{key}");
        if !written.ports.contains_key(&interface.port) {
            let ports = written.ports.keys().map(String::as_str);
            return Err(unknown(at("port"), "port", &interface.port, ports));
        }
        check_instances(&interface.network_instances, &at("network-instances"))?;
        check_tunnels(interface, &at("addresses"))?;
        check_next_hop(interface, &at("next-hop"))?;
        check_icmp_addresses(&interface.icmp_addresses, &at("icmp-addresses"))?;
        for address in &interface.addresses {
            if let Some(owner) = owners.insert(*address, name) {
                let what = format!(
                    "{address} belongs to `{owner}`, too, but the address identifies the \
                     interface of a tunnel; use different addresses"
                );
                return Err(refuse(at("addresses"), what));
            }
        }
        let core = interface.role == Role::N6;
        if let Some(other) = core.then(|| cores.insert(&interface.port, name)).flatten() {
            let what = format!(
                "`{other}` is N6 on port `{}`, too, but IP packets do not identify the \
                 interface; use different ports",
                interface.port
            );
            return Err(refuse(at("port"), what));
        }
    }
    Ok(())
}

/// Checks the network instances of an interface.
fn check_instances(names: &[String], path: &str) -> Result<(), Error> {
    for (index, name) in names.iter().enumerate() {
        if !(1..=100).contains(&name.len()) {
            return Err(refuse(path, "a network instance has a name of 1 to 100 letters"));
        }
        if names[..index].contains(name) {
            return Err(refuse(path, format!("`{name}` is named twice; name it once")));
        }
    }
    Ok(())
}

/// Checks the UE address pools.
fn check_pools(settings: &Settings) -> Result<(), Error> {
    if settings.pools.len() > MAX_ENTRIES {
        let what = format!("{} are configured; write at most {MAX_ENTRIES}", settings.pools.len());
        return Err(refuse("app.pools", what));
    }
    let mut before = Vec::new();
    for (index, pool) in settings.pools.iter().enumerate() {
        let path = format!("app.pools.{index}.prefix");
        let prefix = check_pool(settings, pool, index)?;
        let instance = pool.network_instance.as_str();
        let same = |(name, theirs): &&(&str, Prefix)| *name == instance && overlap(*theirs, prefix);
        if let Some((_, other)) = before.iter().find(same) {
            let what = format!(
                "`{}` overlaps {}/{} of the same network instance; use disjoint pools",
                pool.prefix, other.address, other.length
            );
            return Err(refuse(path, what));
        }
        before.push((instance, prefix));
    }
    Ok(())
}

/// Checks a single pool.
fn check_pool(settings: &Settings, pool: &Pool, index: usize) -> Result<Prefix, Error> {
    let at = |key: &str| format!("app.pools.{index}.{key}");
    let name = pool.network_instance.as_str();
    let lists = settings.interfaces.values().map(|it| &it.network_instances);
    let instances = lists.clone().flatten().map(String::as_str);
    if !lists.clone().any(Vec::is_empty) && !instances.clone().any(|instance| instance == name) {
        let what = "interface of the network instance";
        return Err(unknown(at("network-instance"), what, name, instances));
    }
    let prefix = prefix(&pool.prefix).map_err(|what| refuse(at("prefix"), what))?;
    if prefix.address.is_ipv6() && prefix.length > USER_BITS {
        let what = format!(
            "`{}` has no room for a /64, which each user gets; write a length up to 64",
            pool.prefix
        );
        return Err(refuse(at("prefix"), what));
    }
    let same = settings.interfaces.values().filter(|it| {
        it.network_instances.is_empty() || it.network_instances.iter().any(|own| own == name)
    });
    let mut ours = same.flat_map(|it| &it.addresses);
    if let Some(address) = ours.find(|address| contains(prefix, **address)) {
        let what =
            format!("it contains {address}, a GTP-U address of this UPF; use another prefix");
        return Err(refuse(at("prefix"), what));
    }
    Ok(prefix)
}

/// Checks that an interface has either Linux routes or a next hop.
fn check_next_hop(interface: &Interface, path: &str) -> Result<(), Error> {
    let Some(text) = &interface.next_hop else { return Ok(()) };
    ethernet(text).map_err(|what| refuse(path, what))?;
    if interface.route_table.is_some() {
        let what = "everything is sent to this address without a routing table; leave out \
                    one of `next-hop` and `route-table`";
        return Err(refuse(path, what));
    }
    Ok(())
}

/// Checks the source addresses of ICMP errors.
fn check_icmp_addresses(addresses: &[IpAddr], path: &str) -> Result<(), Error> {
    check_addresses(path, addresses)?;
    let v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    if v4 > 1 || addresses.len() - v4 > 1 {
        return Err(refuse(path, "an error has one source; write at most one of each family"));
    }
    Ok(())
}

/// Checks that N3 and N9 have GTP-U addresses and N6 has none.
fn check_tunnels(interface: &Interface, path: &str) -> Result<(), Error> {
    match (interface.role, interface.addresses.len()) {
        (Role::N6, 0) | (Role::N3 | Role::N9, 1..=MAX_ADDRESSES) => {
            check_addresses(path, &interface.addresses)
        }
        (Role::N6, _) => {
            let what =
                "N6 carries IP and no tunnels; leave them out, the addresses there are Linux's";
            Err(refuse(path, what))
        }
        (Role::N3 | Role::N9, count) => {
            let what = format!(
                "tunnels of N3 and N9 end at an address; {count} are configured; write 1 to \
                 {MAX_ADDRESSES}"
            );
            Err(refuse(path, what))
        }
    }
}

#[cfg(test)]
mod tests;
