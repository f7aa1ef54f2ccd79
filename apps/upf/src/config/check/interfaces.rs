//! Validation of interfaces and pools.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fastlane::Error;
use fastlane::config::raw::Configuration;

use super::{MAX_ENTRIES, check_addresses, refuse, unknown};
use crate::config::addresses::{contains, ethernet, overlap, prefix};
use crate::config::{Interface, Pool, Role, Settings};
use crate::session::Prefix;

/// Maximum length of an IPv6 pool prefix; each UE gets a /64.
const USER_BITS: u8 = 64;
/// Maximum number of GTP-U addresses per interface.
const MAX_ADDRESSES: usize = 16;

/// Checks the interfaces against the ports of the configuration.
pub(super) fn check(
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
        if !(1..=100).contains(&interface.network_instance.len()) {
            let what = "a network instance has a name of 1 to 100 letters";
            return Err(refuse(at("network-instance"), what));
        }
        check_tunnels(interface, &at("addresses"))?;
        check_next_hop(interface, &at("next-hop"))?;
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

/// Checks the UE address pools.
pub(super) fn check_pools(settings: &Settings) -> Result<(), Error> {
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
    let instances = settings.interfaces.values().map(|it| it.network_instance.as_str());
    if !instances.clone().any(|instance| instance == name) {
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
    let same = settings.interfaces.values().filter(|it| it.network_instance == name);
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
