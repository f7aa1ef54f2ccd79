//! Interfaces and pools: what is where.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fastlane::Error;
use fastlane::config::written::Configuration;

use super::{MAX_PLACES, check_addresses, refuse, unknown};
use crate::config::addresses::{contains, ethernet, overlap, prefix};
use crate::config::{Interface, Pool, Role, Settings};
use crate::session::Prefix;

/// The longest prefix of IPv6 of which users get a /64 each.
const USER_BITS: u8 = 64;
/// The most GTP-U addresses of an interface.
const MAX_ADDRESSES: usize = 16;

impl Settings {
    pub(super) fn check_interfaces(&self, written: &Configuration) -> Result<(), Error> {
        if self.interfaces.is_empty() || self.interfaces.len() > MAX_PLACES {
            let what = format!("there are {}; write 1 to {MAX_PLACES}", self.interfaces.len());
            return Err(refuse("app.interfaces", what));
        }
        let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let mut cores: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, interface) in &self.interfaces {
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
                        "{address} is of `{owner}`, too, and a tunnel's address says which \
                         interface it is of; give each its own"
                    );
                    return Err(refuse(at("addresses"), what));
                }
            }
            let core = interface.role == Role::N6;
            if let Some(other) = core.then(|| cores.insert(&interface.port, name)).flatten() {
                let what = format!(
                    "`{other}` is N6 on port `{}`, too, and IP packets do not say which of them \
                     they are of; give each a port",
                    interface.port
                );
                return Err(refuse(at("port"), what));
            }
        }
        Ok(())
    }

    pub(super) fn check_pools(&self) -> Result<(), Error> {
        if self.pools.len() > MAX_PLACES {
            let what = format!("there are {}; write at most {MAX_PLACES}", self.pools.len());
            return Err(refuse("app.pools", what));
        }
        let mut before = Vec::new();
        for (place, pool) in self.pools.iter().enumerate() {
            let path = format!("app.pools.{place}.prefix");
            let prefix = self.check_pool(pool, place)?;
            let instance = pool.network_instance.as_str();
            let same =
                |(name, theirs): &&(&str, Prefix)| *name == instance && overlap(*theirs, prefix);
            if let Some((_, other)) = before.iter().find(same) {
                let what = format!(
                    "`{}` overlaps {}/{} of the same network instance; write pools apart",
                    pool.prefix, other.address, other.length
                );
                return Err(refuse(path, what));
            }
            before.push((instance, prefix));
        }
        Ok(())
    }

    /// A pool by itself.
    fn check_pool(&self, pool: &Pool, place: usize) -> Result<Prefix, Error> {
        let at = |key: &str| format!("app.pools.{place}.{key}");
        let name = pool.network_instance.as_str();
        let instances = self.interfaces.values().map(|it| it.network_instance.as_str());
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
        let same = self.interfaces.values().filter(|it| it.network_instance == name);
        let mut ours = same.flat_map(|it| &it.addresses);
        if let Some(address) = ours.find(|address| contains(prefix, **address)) {
            let what =
                format!("{address}, a GTP-U address of this UPF, is in it; write another prefix");
            return Err(refuse(at("prefix"), what));
        }
        Ok(prefix)
    }
}

/// Either Linux routes, or there is one next hop.
fn check_next_hop(interface: &Interface, path: &str) -> Result<(), Error> {
    let Some(text) = &interface.next_hop else { return Ok(()) };
    ethernet(text).map_err(|what| refuse(path, what))?;
    if interface.route_table.is_some() {
        let what = "everything goes to this address, and no routing table is asked; leave out \
                    one of `next-hop` and `route-table`";
        return Err(refuse(path, what));
    }
    Ok(())
}

/// Tunnels end on N3 and N9, and nowhere else.
fn check_tunnels(interface: &Interface, path: &str) -> Result<(), Error> {
    match (interface.role, interface.addresses.len()) {
        (Role::N6, 0) | (Role::N3 | Role::N9, 1..=MAX_ADDRESSES) => {
            check_addresses(path, &interface.addresses)
        }
        (Role::N6, _) => {
            let what = "N6 has IP and no tunnels; leave them out, Linux has the addresses there";
            Err(refuse(path, what))
        }
        (Role::N3 | Role::N9, count) => {
            let what = format!(
                "tunnels of N3 and N9 end at an address; there are {count}; write 1 to \
                 {MAX_ADDRESSES}"
            );
            Err(refuse(path, what))
        }
    }
}
