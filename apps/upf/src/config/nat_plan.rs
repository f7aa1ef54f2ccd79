//! NAT44 of an N6 interface: the settings, their validation, and the plan of addresses and port
//! blocks that lanes and control plane share.
//!
//! A block is a range of external ports of one external address. Blocks of all interfaces are
//! numbered from 0 on, and so are the buckets of eight ports that they consist of.

use std::net::{IpAddr, Ipv4Addr};

use fastlane::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::addresses::{contains, overlap, prefix};
use super::check::refuse;
use super::{Role, Settings};
use crate::session::{InstanceId, Prefix};

/// Ports of a bucket: one cache line of port slots.
pub const BUCKET: u32 = 8;
/// Maximum number of prefixes of an interface: lanes search them linearly.
const MAX_PREFIXES: usize = 64;
/// Maximum number of external addresses of an interface.
const MAX_ADDRESSES: u32 = 1 << 16;
/// Maximum number of blocks of all interfaces.
const MAX_BLOCKS: u64 = 1 << 22;
/// Limits of the ports of a user.
const PORTS_PER_USER: std::ops::RangeInclusive<u32> = 64..=16_384;
/// Maximum of all timers, in seconds.
const MAX_SECONDS: u32 = 604_800;

/// NAT44 of an N6 interface (RFC 4787, 5382, 5508, 6888).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Nat {
    /// External IPv4 addresses, as prefixes or single addresses.
    pub addresses: Vec<String>,
    /// First external port that is used; even. Default: 1024.
    #[serde(default = "first_port")]
    pub first_port: u16,
    /// Last external port that is used. Default: 65535.
    #[serde(default = "last_port")]
    pub last_port: u16,
    /// External ports of a user: a power of two from 64 to 16384. Default: 256.
    #[serde(default = "ports_per_user")]
    pub ports_per_user: u32,
    /// Prefixes of users' addresses that are translated. Default: the private addresses of RFC
    /// 1918 and the shared ones of RFC 6598.
    #[serde(default = "inside")]
    pub inside: Vec<String>,
    /// Prefixes of destinations to which packets leave untranslated (RFC 6888, REQ-6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untranslated: Vec<String>,
    /// Seconds after its last uplink packet until a UDP mapping ends. RFC 4787, REQ-5, requires
    /// at least 120. Default: 300.
    #[serde(default = "udp")]
    pub udp_s: u32,
    /// Seconds for ICMP queries. RFC 5508, REQ-2, requires at least 60. Default: 60.
    #[serde(default = "icmp")]
    pub icmp_s: u32,
    /// Seconds for TCP mappings with an established connection. RFC 5382, REQ-5, requires at least
    /// 7440. Default: 7440.
    #[serde(default = "tcp")]
    pub tcp_s: u32,
    /// Seconds for TCP mappings whose connection is being set up or closed. RFC 5382, REQ-5,
    /// requires at least 240. Default: 240.
    #[serde(default = "tcp_transitory")]
    pub tcp_transitory_s: u32,
    /// Seconds for which the block of a deleted session rests before another user gets it (RFC
    /// 6888, REQ-8). Default: 120.
    #[serde(default = "rest")]
    pub rest_s: u32,
    /// File to which the log of blocks is appended, a line per allocation and release. Default: the
    /// log of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

const fn first_port() -> u16 {
    1024
}

const fn last_port() -> u16 {
    u16::MAX
}

const fn ports_per_user() -> u32 {
    256
}

fn inside() -> Vec<String> {
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"].map(str::to_owned).to_vec()
}

const fn udp() -> u32 {
    300
}

const fn icmp() -> u32 {
    60
}

const fn tcp() -> u32 {
    7440
}

const fn tcp_transitory() -> u32 {
    240
}

const fn rest() -> u32 {
    120
}

impl Nat {
    /// Returns the number of blocks of each address.
    const fn blocks_per_address(&self) -> u32 {
        let ports = self.last_port as u32 + 1 - self.first_port as u32;
        ports / self.ports_per_user
    }
}

/// Range of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: u32,
    mask: u32,
}

impl AddressRange {
    /// Creates the range of a prefix of IPv4.
    fn new(Prefix { address, length }: Prefix) -> Option<Self> {
        let IpAddr::V4(address) = address else { return None };
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        Some(Self { first: address.to_bits(), mask })
    }

    /// Returns the lowest address.
    pub(crate) const fn lowest(&self) -> u32 {
        self.first & self.mask
    }

    /// Returns the highest address.
    pub(crate) const fn highest(&self) -> u32 {
        self.first | !self.mask
    }

    /// Returns true if it contains an address.
    #[inline]
    #[must_use]
    pub const fn has(&self, address: u32) -> bool {
        address & self.mask == self.first
    }

    /// Returns the number of addresses.
    const fn count(&self) -> u32 {
        (!self.mask).saturating_add(1)
    }
}

/// Addresses and blocks of an N6 interface with NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPool {
    /// Network instance of its users, as lookup keys have it.
    pub instance: InstanceId,
    /// External addresses.
    pub external: Vec<AddressRange>,
    /// Users' addresses that are translated.
    pub inside: Vec<AddressRange>,
    /// Destinations to which packets leave untranslated.
    pub untranslated: Vec<AddressRange>,
    /// First external port.
    pub first_port: u16,
    /// Ports of a block, a power of two.
    pub ports: u32,
    /// Number of blocks of each address.
    pub per_address: u32,
    /// Number of its first block.
    pub first_block: u32,
    /// Number of its blocks.
    pub blocks: u32,
    /// Number of the bucket with its first port.
    pub first_bucket: u32,
    /// Seconds until mappings end: UDP, ICMP, established and other TCP.
    pub timers: [u32; 4],
    /// Seconds for which a released block rests.
    pub rest_s: u32,
    /// File of the log.
    pub log: Option<String>,
}

/// A block of external ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBlock {
    /// External address.
    pub address: Ipv4Addr,
    /// First port.
    pub first_port: u16,
    /// Number of its first bucket.
    pub bucket: u32,
}

impl NatPool {
    /// Returns the position of an external address.
    #[inline]
    fn position(&self, address: u32) -> Option<u32> {
        let mut before = 0;
        for range in &self.external {
            if range.has(address) {
                return Some(before + (address - range.first));
            }
            before += range.count();
        }
        None
    }

    /// Returns true if an address is an external one.
    #[inline]
    #[must_use]
    pub fn is_external(&self, address: u32) -> bool {
        self.external.iter().any(|range| range.has(address))
    }

    /// Returns the number of the block of an external address and port. `None` if it is in no
    /// block.
    #[inline]
    #[must_use]
    pub fn block_of(&self, address: u32, port: u16) -> Option<u32> {
        let offset = u32::from(port.checked_sub(self.first_port)?);
        let block = offset >> self.ports.trailing_zeros();
        let address = self.position(address).filter(|_| block < self.per_address)?;
        Some(self.first_block + address * self.per_address + block)
    }

    /// Returns a block of this interface by its number.
    #[must_use]
    pub fn block(&self, number: u32) -> Option<PortBlock> {
        let index = number.checked_sub(self.first_block).filter(|index| *index < self.blocks)?;
        let (mut position, of_address) = (index / self.per_address, index % self.per_address);
        for range in &self.external {
            if position < range.count() {
                let first_port = u32::from(self.first_port) + of_address * self.ports;
                return Some(PortBlock {
                    address: (range.first + position).into(),
                    first_port: u16::try_from(first_port).ok()?,
                    bucket: self.first_bucket + index * (self.ports / BUCKET),
                });
            }
            position -= range.count();
        }
        None
    }
}

/// All interfaces with NAT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatPlan {
    /// By interface, in the order of their names.
    pub pools: Vec<NatPool>,
}

impl NatPlan {
    /// Creates the plan of checked settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let network = settings.network();
        let mut plan = Self::default();
        let ranges = |texts: &[String]| -> Vec<AddressRange> {
            texts.iter().filter_map(|text| AddressRange::new(address_prefix(text).ok()?)).collect()
        };
        for (index, interface) in settings.interfaces.values().enumerate() {
            let Some(nat) = interface.nat.as_ref().filter(|nat| nat.ports_per_user > 0) else {
                continue;
            };
            let Some(instance) = network.served_by(index).first().copied() else { continue };
            let external = ranges(&nat.addresses);
            let addresses: u32 = external.iter().map(AddressRange::count).sum();
            let per_address = nat.blocks_per_address();
            plan.pools.push(NatPool {
                instance,
                external,
                inside: ranges(&nat.inside),
                untranslated: ranges(&nat.untranslated),
                first_port: nat.first_port,
                ports: nat.ports_per_user,
                per_address,
                first_block: plan.blocks(),
                blocks: addresses.saturating_mul(per_address),
                first_bucket: plan.buckets(),
                timers: [nat.udp_s, nat.icmp_s, nat.tcp_s, nat.tcp_transitory_s],
                rest_s: nat.rest_s,
                log: nat.log.clone(),
            });
        }
        plan
    }

    /// Returns the number of all blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.pools.last().map_or(0, |pool| pool.first_block + pool.blocks)
    }

    /// Returns the number of all buckets.
    #[must_use]
    pub fn buckets(&self) -> u32 {
        self.pools.last().map_or(0, |pool| pool.first_bucket + pool.blocks * (pool.ports / BUCKET))
    }

    /// Returns the interface with NAT of a network instance.
    #[must_use]
    pub fn of_instance(&self, instance: InstanceId) -> Option<&NatPool> {
        self.pools.iter().find(|pool| pool.instance == instance)
    }

    /// Returns the interface that a block belongs to.
    #[must_use]
    pub fn of_block(&self, block: u32) -> Option<&NatPool> {
        self.pools.iter().find(|pool| pool.block(block).is_some())
    }
}

/// Parses a prefix, or an address as the prefix of itself.
pub(crate) fn address_prefix(text: &str) -> Result<Prefix, String> {
    match text.parse::<Ipv4Addr>() {
        Ok(address) => Ok(Prefix { address: address.into(), length: 32 }),
        Err(_) => prefix(text),
    }
}

/// Checks NAT of all interfaces.
pub(super) fn check_nat(settings: &Settings) -> Result<(), Error> {
    let network = settings.network();
    let mut taken: Vec<(&str, Prefix)> = Vec::new();
    let mut blocks = 0_u64;
    for (index, (name, interface)) in settings.interfaces.iter().enumerate() {
        let Some(nat) = &interface.nat else { continue };
        let at = |key: &str| format!("app.interfaces.{name}.nat{key}");
        if interface.role != Role::N6 {
            return Err(refuse(at(""), "only N6 carries users' packets as IP; remove it here"));
        }
        let instance = network.served_by(index);
        let mut others = settings.interfaces.values().enumerate();
        if others.any(|(other, it)| {
            other != index && it.role == Role::N6 && network.served_by(other) == instance
        }) {
            let what = "another N6 interface serves the same network instances, and a user has \
                        one external address; use one interface";
            return Err(refuse(at(""), what));
        }
        let external = check_external(settings, nat, &at(".addresses"))?;
        for (number, prefix) in external.iter().enumerate() {
            if let Some((other, _)) = taken.iter().find(|(_, other)| overlap(*other, *prefix)) {
                let what = format!("it overlaps an address of `{other}`; use disjoint addresses");
                return Err(refuse(at(&format!(".addresses.{number}")), what));
            }
            taken.push((name, *prefix));
        }
        check_prefixes(&nat.inside, &at(".inside"))?;
        check_prefixes(&nat.untranslated, &at(".untranslated"))?;
        check_ports(nat, at)?;
        let addresses: u64 = external.iter().map(|it| 1_u64 << (32 - it.length.min(32))).sum();
        blocks += addresses * u64::from(nat.blocks_per_address());
        if addresses > u64::from(MAX_ADDRESSES) || blocks > MAX_BLOCKS {
            let what = format!(
                "{addresses} addresses of {} blocks are too many; write at most {MAX_ADDRESSES} \
                 addresses, and {MAX_BLOCKS} blocks of all interfaces",
                nat.blocks_per_address()
            );
            return Err(refuse(at(".addresses"), what));
        }
    }
    Ok(())
}

/// Checks the external addresses of an interface.
fn check_external(settings: &Settings, nat: &Nat, path: &str) -> Result<Vec<Prefix>, Error> {
    if nat.addresses.is_empty() {
        return Err(refuse(path, "NAT needs an address to translate to; write at least one"));
    }
    let external = check_prefixes(&nat.addresses, path)?;
    for prefix in &external {
        let pools = settings.pools.iter().filter_map(super::Pool::parsed);
        if let Some(pool) = pools.clone().find(|pool| overlap(*pool, *prefix)) {
            let what = format!(
                "{}/{} overlaps the pool {}/{}, whose addresses are users'; use other addresses",
                prefix.address, prefix.length, pool.address, pool.length
            );
            return Err(refuse(path, what));
        }
        let mut own = settings.interfaces.values().flat_map(|it| &it.addresses);
        if let Some(address) = own.find(|address| contains(*prefix, **address)) {
            let what = format!("it contains {address}, a GTP-U address of this UPF; use another");
            return Err(refuse(path, what));
        }
    }
    Ok(external)
}

/// Checks and parses prefixes of IPv4.
fn check_prefixes(texts: &[String], path: &str) -> Result<Vec<Prefix>, Error> {
    if texts.len() > MAX_PREFIXES {
        let what = format!("{} are configured; write at most {MAX_PREFIXES}", texts.len());
        return Err(refuse(path, what));
    }
    let mut all = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let at = format!("{path}.{index}");
        let prefix = address_prefix(text).map_err(|what| refuse(&at, what))?;
        if prefix.address.is_ipv6() {
            return Err(refuse(at, "NAT44 translates IPv4 only; write a prefix of IPv4"));
        }
        if all.iter().any(|other| overlap(*other, prefix)) {
            return Err(refuse(at, format!("`{text}` overlaps another one; name each once")));
        }
        all.push(prefix);
    }
    Ok(all)
}

/// Checks ports and timers of an interface.
fn check_ports(nat: &Nat, at: impl Fn(&str) -> String) -> Result<(), Error> {
    if nat.first_port == 0 || !nat.first_port.is_multiple_of(2) {
        let what = "ports keep their parity (RFC 4787, REQ-4); write an even number above 0";
        return Err(refuse(at(".first-port"), what));
    }
    let ports = nat.ports_per_user;
    if !ports.is_power_of_two() || !PORTS_PER_USER.contains(&ports) {
        let what = format!("{ports} is not allowed; write a power of two from 64 to 16384");
        return Err(refuse(at(".ports-per-user"), what));
    }
    let available = (u32::from(nat.last_port) + 1).saturating_sub(nat.first_port.into());
    if available < ports {
        let what = format!(
            "{available} ports from {} to {} are fewer than those of a user, {ports}",
            nat.first_port, nat.last_port
        );
        return Err(refuse(at(".last-port"), what));
    }
    let timers = [
        (".udp-s", nat.udp_s, 1),
        (".icmp-s", nat.icmp_s, 1),
        (".tcp-s", nat.tcp_s, 1),
        (".tcp-transitory-s", nat.tcp_transitory_s, 1),
        (".rest-s", nat.rest_s, 0),
    ];
    for (key, seconds, least) in timers {
        if !(least..=MAX_SECONDS).contains(&seconds) {
            let what = format!("{seconds} is not allowed; write {least} to {MAX_SECONDS}");
            return Err(refuse(at(key), what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
