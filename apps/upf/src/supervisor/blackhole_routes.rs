//! Blackhole routes of UE pools and of external addresses of NAT in Linux: without them Linux would
//! forward packets to UEs in a loop, or answer them with ICMP errors.

use std::io;
use std::net::IpAddr;

use fastlane::mirror::blackhole;

use crate::config::nat_plan::address_prefix;
use crate::config::{Interface, Role, Settings};
use crate::session::Prefix;

/// Linux's main routing table.
const MAIN: u32 = 254;

/// A pool, or external addresses of NAT, and a Linux routing table that needs a blackhole route for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackholeRoute {
    /// Prefix of the pool or of the external addresses.
    pub prefix: Prefix,
    /// Routing table.
    pub table: u32,
    /// True for external addresses of NAT. Linux may have them itself.
    pub is_nat: bool,
}

/// Returns the required blackhole routes: each pool in the main table and the tables of its network
/// instance. Pools whose packets Linux itself forwards to the UPF, where N6 has a configured next
/// hop, need none.
#[must_use]
pub fn blackhole_routes(settings: &Settings) -> Vec<BlackholeRoute> {
    let mut them = Vec::new();
    for pool in &settings.pools {
        let Some(prefix) = pool.parsed() else { continue };
        let name = &pool.network_instance;
        let lists = |it: &&Interface| it.network_instances.contains(name);
        let n6 = || settings.interfaces.values().filter(|it| it.role == Role::N6);
        let is_listed = n6().any(|it| lists(&it));
        let serves = |it: &&Interface| {
            lists(it) || !is_listed && it.role == Role::N6 && it.network_instances.is_empty()
        };
        let same = settings.interfaces.values().filter(serves);
        if same.clone().any(|it| it.role == Role::N6 && it.next_hop.is_some()) {
            continue;
        }
        let tables = same.filter_map(|it| it.route_table).chain([MAIN]);
        them.extend(tables.map(|table| BlackholeRoute { prefix, table, is_nat: false }));
    }
    let n6 = settings.interfaces.values().filter(|it| it.next_hop.is_none());
    for interface in n6 {
        let addresses = interface.nat.iter().flat_map(|nat| &nat.addresses);
        let prefixes = addresses.filter_map(|text| address_prefix(text).ok());
        let table = interface.route_table.unwrap_or(MAIN);
        them.extend(prefixes.map(|prefix| BlackholeRoute { prefix, table, is_nat: true }));
    }
    them.dedup();
    them
}

impl BlackholeRoute {
    /// Returns the equivalent command.
    #[must_use]
    pub fn command(&self) -> String {
        let Prefix { address, length } = self.prefix;
        let table =
            if self.table == MAIN { String::new() } else { format!(" table {}", self.table) };
        let family = if address.is_ipv4() { "" } else { "-6 " };
        format!("ip {family}route add blackhole {address}/{length}{table}")
    }
}

/// Adds missing routes and returns the problems, one sentence each. The control plane continues
/// without them, since lanes never give such packets to Linux.
#[must_use]
pub fn add_missing(settings: &Settings) -> Vec<String> {
    blackhole_routes(settings).into_iter().filter_map(|it| add_one(it).err()).collect()
}

fn add_one(it: BlackholeRoute) -> Result<(), String> {
    let Prefix { address, length } = it.prefix;
    let said = |error: io::Error| {
        format!(
            "{address}/{length}: Linux may forward its packets, because the blackhole route \
             cannot be added: {error}; run `{}` as root",
            it.command()
        )
    };
    let is_added = blackhole::add(address, length, it.table).map_err(said)?;
    if is_added || it.table != MAIN || it.is_nat {
        return Ok(());
    }
    open(address).map_or(Ok(()), |problem| Err(format!("{problem}; run `{}`", it.command())))
}

/// Returns the problem if packets for this address are not discarded by Linux.
fn open(address: IpAddr) -> Option<String> {
    match blackhole::is_blackhole(address) {
        Ok(true) => None,
        Ok(false) => {
            Some(format!("pool of {address}: Linux has another route to it; remove that route"))
        }
        Err(error) => Some(format!("pool of {address}: the route lookup in Linux failed: {error}")),
    }
}

/// Returns the pools that Linux might forward to, one sentence each. Changes nothing.
#[must_use]
pub fn examine(settings: &Settings) -> Vec<String> {
    let routes = blackhole_routes(settings).into_iter();
    let main = routes.filter(|it| it.table == MAIN && !it.is_nat);
    main.filter_map(|it| {
        let closed = blackhole::is_blackhole(it.prefix.address).unwrap_or(false);
        (!closed).then(|| {
            let Prefix { address, length } = it.prefix;
            format!(
                "pool {address}/{length} has no blackhole route in Linux yet: the control plane \
                 adds it at its start if permitted; or run `{}`",
                it.command()
            )
        })
    })
    .collect()
}
