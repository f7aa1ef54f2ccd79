//! Users' addresses are nowhere in Linux: what it would forward to there would loop, or draw ICMP.

use std::io;
use std::net::IpAddr;

use fastlane::kernel::blackhole;

use crate::config::{Role, Settings};
use crate::session::Prefix;

/// Linux's main routing table.
const MAIN: u32 = 254;

/// A pool, and a routing table of Linux that must not know a way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nowhere {
    /// The addresses.
    pub prefix: Prefix,
    /// The table.
    pub table: u32,
}

/// The pools, each in the main table and in the tables of its network instance. Not those whose
/// packets Linux itself brings to the UPF: where all that leaves by N6 goes to one next hop.
#[must_use]
pub fn nowhere(settings: &Settings) -> Vec<Nowhere> {
    let mut them = Vec::new();
    for pool in &settings.pools {
        let Some(prefix) = pool.parsed() else { continue };
        let same = settings.interfaces.values();
        let same = same.filter(|it| it.network_instance == pool.network_instance);
        if same.clone().any(|it| it.role == Role::N6 && it.next_hop.is_some()) {
            continue;
        }
        let tables = same.filter_map(|it| it.route_table).chain([MAIN]);
        them.extend(tables.map(|table| Nowhere { prefix, table }));
    }
    them.dedup();
    them
}

impl Nowhere {
    /// The command that does the same.
    #[must_use]
    pub fn command(&self) -> String {
        let Prefix { address, length } = self.prefix;
        let table =
            if self.table == MAIN { String::new() } else { format!(" table {}", self.table) };
        let family = if address.is_ipv4() { "" } else { "-6 " };
        format!("ip {family}route add blackhole {address}/{length}{table}")
    }
}

/// Adds what is missing, and returns the problems as sentences: the slow half goes on without, for
/// lanes never give such packets to Linux.
#[must_use]
pub fn close(settings: &Settings) -> Vec<String> {
    nowhere(settings).into_iter().filter_map(|it| close_one(it).err()).collect()
}

fn close_one(it: Nowhere) -> Result<(), String> {
    let Prefix { address, length } = it.prefix;
    let said = |error: io::Error| {
        format!(
            "pool {address}/{length}: Linux may forward its packets, for the route to nowhere \
             cannot be added: {error}; run `{}` as root",
            it.command()
        )
    };
    if blackhole::add(address, length, it.table).map_err(said)? || it.table != MAIN {
        return Ok(());
    }
    open(address).map_or(Ok(()), |problem| Err(format!("{problem}; run `{}`", it.command())))
}

/// What is wrong if packets for this address do not end in Linux.
fn open(address: IpAddr) -> Option<String> {
    match blackhole::is_blackhole(address) {
        Ok(true) => None,
        Ok(false) => {
            Some(format!("pool of {address}: Linux has another route to it, or none; remove that"))
        }
        Err(error) => Some(format!("pool of {address}: Linux does not say where it is: {error}")),
    }
}

/// The pools that Linux might forward to: a sentence each. Touches nothing.
#[must_use]
pub fn examine(settings: &Settings) -> Vec<String> {
    let main = nowhere(settings).into_iter().filter(|it| it.table == MAIN);
    main.filter_map(|it| {
        let closed = blackhole::is_blackhole(it.prefix.address).unwrap_or(false);
        (!closed).then(|| {
            let Prefix { address, length } = it.prefix;
            format!(
                "pool {address}/{length} is no blackhole in Linux yet: the slow half makes it one \
                 at its start, if it may; or run `{}`",
                it.command()
            )
        })
    })
    .collect()
}
