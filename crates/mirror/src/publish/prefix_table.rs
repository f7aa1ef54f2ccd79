//! Prefix tables of one routing table.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use fastlane_table::{Lpm4Writer, Lpm6Writer, Prefix as Range, Readers, SharedMemory, TableError};

use super::super::Prefix;
use super::super::model::{Model, Target};
use super::next_hop_groups::NextHopGroups;
use super::next_hops::Ports;

/// Writer of the prefix tables of one routing table.
pub(super) struct PrefixTable {
    /// Number of the routing table in Linux.
    pub(super) number: u32,
    four: Lpm4Writer,
    six: Lpm6Writer,
    /// Group id of each published destination.
    published: HashMap<Prefix, u32>,
    /// Destinations that did not fit: into the prefix table, so that lookups of the family must not
    /// be used, or (`reduced`) into the tables of groups and hops.
    missing: [BTreeSet<Prefix>; 2],
    reduced: BTreeSet<Prefix>,
}

impl PrefixTable {
    pub(super) fn attach(
        number: u32,
        memories: &[Arc<SharedMemory>; 2],
        readers: &Arc<Readers>,
    ) -> Result<Self, TableError> {
        Ok(Self {
            number,
            four: Lpm4Writer::attach(&memories[0], readers)?,
            six: Lpm6Writer::attach(&memories[1], readers)?,
            published: HashMap::new(),
            missing: Default::default(),
            reduced: BTreeSet::new(),
        })
    }

    /// Returns the number of destinations.
    pub(super) fn len(&self) -> usize {
        self.published.len()
    }

    /// Returns the number of destinations that did not fit.
    pub(super) fn waiting(&self) -> usize {
        self.missing.iter().map(BTreeSet::len).sum::<usize>() + self.reduced.len()
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Returns true if a destination of a family is missing, so that a shorter prefix would match
    /// wrongly.
    pub(super) fn lacks(&self, ipv6: bool) -> bool {
        !self.missing[usize::from(ipv6)].is_empty()
    }

    /// Returns the destinations that did not fit, to be retried.
    pub(super) fn take_waiting(&mut self) -> BTreeSet<Prefix> {
        let mut waiting = std::mem::take(&mut self.reduced);
        waiting.extend(self.missing.iter().flatten());
        waiting
    }

    /// Publishes `target` for a destination, or removes the destination without one.
    ///
    /// # Errors
    /// Returns an error if the table is full. The destination then waits for a free slot.
    pub(super) fn write(
        &mut self,
        destination: Prefix,
        target: Option<Target>,
        groups: &mut NextHopGroups,
        state: &Model,
        ports: &Ports,
    ) -> Result<(), TableError> {
        let family = usize::from(destination.is_ipv6());
        self.reduced.remove(&destination);
        let old = self.published.get(&destination).copied();
        let Some(target) = target else {
            self.missing[family].remove(&destination);
            if let Some(old) = old {
                self.remove(destination);
                self.published.remove(&destination);
                groups.release(old);
            }
            return Ok(());
        };
        if let Some(old) = old
            && (groups.is(old, &target) || groups.exchange(old, &target, state, ports))
        {
            self.missing[family].remove(&destination);
            return Ok(());
        }
        let group = groups.acquire(target, state, ports).unwrap_or_else(|reason| {
            self.reduced.insert(destination);
            reason as u32
        });
        if let Err(error) = self.insert(destination, group) {
            groups.release(group);
            self.missing[family].insert(destination);
            return Err(error);
        }
        self.missing[family].remove(&destination);
        self.published.insert(destination, group);
        old.into_iter().for_each(|old| groups.release(old));
        Ok(())
    }

    fn insert(&mut self, destination: Prefix, group: u32) -> Result<(), TableError> {
        let length = destination.length();
        // A prefix of the model is always one of the table.
        match destination.address() {
            IpAddr::V4(address) => {
                Range::new(address, length).map_or(Ok(()), |prefix| self.four.insert(prefix, group))
            }
            IpAddr::V6(address) => {
                Range::new(address, length).map_or(Ok(()), |prefix| self.six.insert(prefix, group))
            }
        }
    }

    fn remove(&mut self, destination: Prefix) {
        let length = destination.length();
        match destination.address() {
            IpAddr::V4(address) => {
                Range::new(address, length).map(|prefix| self.four.remove(prefix));
            }
            IpAddr::V6(address) => {
                Range::new(address, length).map(|prefix| self.six.remove(prefix));
            }
        }
    }
}
