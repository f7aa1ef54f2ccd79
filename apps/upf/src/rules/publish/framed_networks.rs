//! Networks behind UEs in the prefix tables.
//!
//! The prefix tables have no network instances. Each prefix therefore leads to its owner in every
//! instance in which it, or a prefix that contains it, has one: that of the longest prefix per
//! instance. Adding or removing a network updates all prefixes within it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::table::{Prefix, TableError};

use super::slot_allocator::IndexAllocator;
use super::{Tables, step};
use crate::rules::compile::FramedRoute;
use crate::rules::layout::{FRAMED_ANY, FRAMED_INSTANCES, Framed};
use crate::session::{InstanceId, SessionIndex};

/// Prefix: family, bits with the first one most significant, length. Sorted, a prefix comes right
/// before those within it.
type PrefixKey = (u8, u128, u8);

/// State of a prefix.
#[derive(Debug, Default)]
struct Network {
    /// Owners of exactly this prefix, by instance.
    owners: Vec<(InstanceId, SessionIndex)>,
    /// Index in the table of owners.
    entry: Option<u32>,
}

/// All networks behind UEs.
#[derive(Debug)]
pub(super) struct FramedNetworks {
    by_prefix: BTreeMap<PrefixKey, Network>,
    entries: IndexAllocator,
}

/// Reason why a network cannot be published.
#[derive(Debug)]
pub(super) enum NetworkError {
    /// Owned by another session.
    Taken(SessionIndex),
    /// No free entry.
    Full,
    /// Error of a table.
    Table(TableError),
}

impl From<TableError> for NetworkError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

fn prefix_key(route: &FramedRoute) -> PrefixKey {
    match route.address {
        IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96, route.length),
        IpAddr::V6(address) => (6, address.to_bits(), route.length),
    }
}

fn masked(bits: u128, length: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
}

fn v4((_, bits, length): PrefixKey) -> Option<Prefix<Ipv4Addr>> {
    Prefix::new(Ipv4Addr::from_bits((bits >> 96) as u32), length)
}

fn v6((_, bits, length): PrefixKey) -> Option<Prefix<Ipv6Addr>> {
    Prefix::new(Ipv6Addr::from_bits(bits), length)
}

/// Tells lanes that networks exist, so they look for them from now on.
fn set_marker(tables: &mut Tables) -> Result<(), TableError> {
    if tables.framed.get(FRAMED_ANY).is_none() {
        step();
        tables.framed.set(FRAMED_ANY, &Framed::of(&[]))?;
    }
    Ok(())
}

impl FramedNetworks {
    pub(super) fn new(tables: &Tables) -> Self {
        let entries =
            IndexAllocator::new(FRAMED_ANY + 1, tables.framed.capacity(), &tables.grace_periods);
        Self { by_prefix: BTreeMap::new(), entries }
    }

    /// Returns the owner of a network.
    pub(super) fn owner(&self, route: &FramedRoute) -> Option<SessionIndex> {
        let owners = &self.by_prefix.get(&prefix_key(route))?.owners;
        owners.iter().find(|(instance, _)| *instance == route.instance).map(|it| it.1)
    }

    /// Assigns a network to a session. Returns true if it did not own it before.
    pub(super) fn add(
        &mut self,
        tables: &mut Tables,
        route: &FramedRoute,
        session: SessionIndex,
    ) -> Result<bool, NetworkError> {
        match self.owner(route) {
            Some(owner) if owner != session => return Err(NetworkError::Taken(owner)),
            Some(_) => return Ok(false),
            None => {}
        }
        let at = prefix_key(route);
        set_marker(tables)?;
        self.by_prefix.entry(at).or_default().owners.push((route.instance, session));
        let done = self.write_within(tables, at);
        if done.is_err() {
            self.remove(tables, route, session);
        }
        done.map(|()| true)
    }

    /// Removes a network from a session, if it owns it.
    pub(super) fn remove(
        &mut self,
        tables: &mut Tables,
        route: &FramedRoute,
        session: SessionIndex,
    ) {
        let at = prefix_key(route);
        let Some(network) = self.by_prefix.get_mut(&at) else { return };
        network.owners.retain(|owner| *owner != (route.instance, session));
        if network.owners.is_empty() {
            let entry = network.entry;
            self.by_prefix.remove(&at);
            step();
            match at.0 {
                4 => v4(at).is_some_and(|prefix| tables.framed4.remove(prefix)),
                _ => v6(at).is_some_and(|prefix| tables.framed6.remove(prefix)),
            };
            if let Some(entry) = entry {
                step();
                tables.framed.clear(entry as usize);
                self.entries.retire(entry);
            }
        }
        // The former content fits.
        let _ = self.write_within(tables, at);
        self.clear_marker(tables);
    }

    /// Tells lanes that no network exists, if that is so.
    fn clear_marker(&self, tables: &mut Tables) {
        if self.by_prefix.is_empty() && tables.framed.get(FRAMED_ANY).is_some() {
            step();
            tables.framed.clear(FRAMED_ANY);
        }
    }

    /// Returns true if a session's networks can be added, as far as is known in advance.
    pub(super) fn has_room(
        &self,
        tables: &Tables,
        routes: &[FramedRoute],
        session: SessionIndex,
    ) -> bool {
        let new = || routes.iter().filter(|route| self.owner(route) != Some(session));
        let is_known = |at: &PrefixKey| self.by_prefix.contains_key(at);
        let mut prefixes: Vec<PrefixKey> =
            new().map(prefix_key).filter(|at| !is_known(at)).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let count = |family| prefixes.iter().filter(|at| at.0 == family).count();
        tables.framed4.len() + count(4) <= tables.framed4.capacity()
            && tables.framed6.len() + count(6) <= tables.framed6.capacity()
            && prefixes.len() <= self.entries.left() as usize
            && new().all(|route| self.has_room_for(routes, route))
    }

    /// Returns true if the entries of a network and those within it have room for one more owner.
    fn has_room_for(&self, routes: &[FramedRoute], route: &FramedRoute) -> bool {
        let at = prefix_key(route);
        let within =
            |other: &PrefixKey| other.0 == at.0 && other.2 >= at.2 && masked(other.1, at.2) == at.1;
        let own = routes.iter().map(prefix_key).filter(within);
        let (family, bits, length) = at;
        let last = (family, bits | !masked(u128::MAX, length), u8::MAX);
        let in_use = self.by_prefix.range(at..=last).map(|(prefix, _)| *prefix);
        own.chain(in_use).all(|other| {
            let mut instances: Vec<InstanceId> =
                self.owners(other).into_iter().map(|(instance, _)| instance).collect();
            let holds = |it: &&FramedRoute| {
                let (family, bits, length) = prefix_key(it);
                family == other.0 && length <= other.2 && masked(other.1, length) == bits
            };
            instances.extend(routes.iter().filter(holds).map(|it| it.instance));
            instances.sort_unstable();
            instances.dedup();
            instances.len() <= FRAMED_INSTANCES
        })
    }

    /// Writes the entries of a prefix and all prefixes within it.
    fn write_within(&mut self, tables: &mut Tables, at: PrefixKey) -> Result<(), NetworkError> {
        let (family, bits, length) = at;
        let last = bits | !masked(u128::MAX, length);
        let within = self.by_prefix.range(at..=(family, last, u8::MAX)).map(|(prefix, _)| *prefix);
        for prefix in within.collect::<Vec<_>>() {
            self.write(tables, prefix)?;
        }
        Ok(())
    }

    fn write(&mut self, tables: &mut Tables, at: PrefixKey) -> Result<(), NetworkError> {
        let owners = self.owners(at);
        if owners.len() > FRAMED_INSTANCES {
            return Err(NetworkError::Full);
        }
        let Some(network) = self.by_prefix.get_mut(&at) else { return Ok(()) };
        let entry = match network.entry {
            Some(entry) => entry,
            None => self.entries.take(&tables.grace_periods).ok_or(NetworkError::Full)?,
        };
        network.entry = Some(entry);
        let framed = Framed::of(&owners);
        if tables.framed.get(entry as usize) != Some(&framed) {
            step();
            tables.framed.set(entry as usize, &framed)?;
        }
        step();
        match at.0 {
            4 => match v4(at) {
                Some(prefix) if tables.framed4.get(prefix) != Some(entry) => {
                    tables.framed4.insert(prefix, entry)?;
                }
                _ => {}
            },
            _ => match v6(at) {
                Some(prefix) if tables.framed6.get(prefix) != Some(entry) => {
                    tables.framed6.insert(prefix, entry)?;
                }
                _ => {}
            },
        }
        Ok(())
    }

    /// Returns the owners of a prefix by instance: the longest prefix of each.
    fn owners(&self, (family, bits, length): PrefixKey) -> Vec<(InstanceId, SessionIndex)> {
        let mut owners: Vec<(InstanceId, SessionIndex)> = Vec::new();
        for shorter in (0..=length).rev() {
            let Some(network) = self.by_prefix.get(&(family, masked(bits, shorter), shorter))
            else {
                continue;
            };
            for (instance, session) in &network.owners {
                if !owners.iter().any(|(in_use, _)| in_use == instance) {
                    owners.push((*instance, *session));
                }
            }
        }
        owners.sort_unstable();
        owners
    }

    /// Makes the tables match these networks, whatever they contained; called on an empty state.
    /// Returns the number of those that do not fit.
    pub(super) fn recover(
        &mut self,
        tables: &mut Tables,
        routes: impl Iterator<Item = (FramedRoute, SessionIndex)>,
    ) -> usize {
        for (route, session) in routes {
            let network = self.by_prefix.entry(prefix_key(&route)).or_default();
            if !network.owners.iter().any(|(instance, _)| *instance == route.instance) {
                network.owners.push((route.instance, session));
            }
        }
        if !self.by_prefix.is_empty() && set_marker(tables).is_err() {
            return self.by_prefix.len();
        }
        let all4: Vec<_> = tables.framed4.iter().collect();
        for (prefix, entry) in all4 {
            let bits = u128::from(prefix.address().to_bits()) << 96;
            self.keep_or_remove((4, bits, prefix.length()), entry, |at| {
                let _ = v4(at).map(|prefix| tables.framed4.remove(prefix));
            });
        }
        let all6: Vec<_> = tables.framed6.iter().collect();
        for (prefix, entry) in all6 {
            self.keep_or_remove((6, prefix.address().to_bits(), prefix.length()), entry, |at| {
                let _ = v6(at).map(|prefix| tables.framed6.remove(prefix));
            });
        }
        let entries: Vec<usize> = tables.framed.iter().map(|(entry, _)| entry).collect();
        for entry in entries {
            if entry != FRAMED_ANY && !self.entries.is_used(entry as u32) {
                step();
                tables.framed.clear(entry);
            }
        }
        self.clear_marker(tables);
        let prefixes: Vec<PrefixKey> = self.by_prefix.keys().copied().collect();
        prefixes.into_iter().filter(|prefix| self.write(tables, *prefix).is_err()).count()
    }

    /// Keeps a prefix of the table, or removes it.
    fn keep_or_remove(&mut self, at: PrefixKey, entry: u32, remove: impl FnOnce(PrefixKey)) {
        match self.by_prefix.get_mut(&at) {
            Some(network) if self.entries.mark(entry) => network.entry = Some(entry),
            Some(_) => {}
            None => {
                step();
                remove(at);
            }
        }
    }
}
