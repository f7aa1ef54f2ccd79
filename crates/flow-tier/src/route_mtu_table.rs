//! Table of the MTUs of IPv4 routes, by prefix.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Map, MapData, MapError};
use fastlane_mirror::Prefix;

use crate::error::system;

/// Maximum number of prefixes. `bpf/flows.bpf.c` has room for twice as many and one more: new ones
/// are added before old ones are removed.
const MOST: usize = 4096;

/// Address of the prefix of all addresses.
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The table.
pub(crate) struct RouteMtuTable {
    trie: LpmTrie<MapData, [u8; 4], u32>,
    written: BTreeMap<Prefix, u32>,
}

impl RouteMtuTable {
    /// Opens the table with what a predecessor has written.
    pub(crate) fn open(descriptor: OwnedFd) -> Result<Self, MapError> {
        let map = Map::LpmTrie(MapData::from_fd(descriptor)?);
        let trie: LpmTrie<MapData, [u8; 4], u32> = map.try_into()?;
        let prefix = |key: Key<[u8; 4]>| {
            let address = IpAddr::from(Ipv4Addr::from(key.data()));
            Prefix::new(address, key.prefix_len().min(32) as u8)
        };
        let written = trie.iter().map(|found| found.map(|(key, mtu)| (prefix(key), mtu)));
        let written = written.collect::<Result<_, _>>()?;
        Ok(Self { trie, written })
    }

    /// Writes the MTUs of prefixes, and removes all others. Of too many the least is that of all
    /// addresses. [`u32::MAX`] is none, for a prefix that one with an MTU covers.
    pub(crate) fn set(&mut self, mtus: BTreeMap<Prefix, u32>) -> io::Result<()> {
        let wanted = match mtus.values().min() {
            Some(least) if mtus.len() > MOST => BTreeMap::from([(Prefix::new(ALL, 0), *least)]),
            _ => mtus,
        };
        if wanted == self.written {
            return Ok(());
        }
        for (prefix, mtu) in &wanted {
            if self.written.get(prefix) != Some(mtu) {
                self.trie.insert(&key(prefix), mtu, 0).map_err(system)?;
                self.written.insert(*prefix, *mtu);
            }
        }
        let others: Vec<Prefix> =
            self.written.keys().filter(|it| !wanted.contains_key(it)).copied().collect();
        for other in others {
            self.trie.remove(&key(&other)).map_err(system)?;
            self.written.remove(&other);
        }
        Ok(())
    }
}

/// Returns the key of a prefix, which is of IPv4.
fn key(prefix: &Prefix) -> Key<[u8; 4]> {
    let octets = match prefix.address() {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    Key::new(u32::from(prefix.length()), octets)
}
