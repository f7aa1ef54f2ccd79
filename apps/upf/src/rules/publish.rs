//! Publishing: writes sessions into the [`Tables`] that lanes read.
//!
//! A session's blocks are written to free indices, then its new keys, then its rules: that store is
//! the change. Keys that it no longer has are removed afterwards, and the indices of its old blocks
//! are reused once every lane has passed a turn. A process that is killed anywhere in between
//! leaves at most superfluous keys and unreferenced blocks, which [`Published::recover`] finds.
//!
//! # Counter slots
//! A session's first URR and first QER use the slot with the session's own index. Others use a slot
//! each, which [`Published::assign`] assigns when the rule is created and which is kept in the
//! record. A slot is not zeroed when its owner changes: the new URR starts from its current
//! counters, since they never decrease.

mod framed_networks;
mod nat_blocks;
mod nat_log;
mod publish_error;
mod slice_groups;
mod slot_allocator;
mod table_recovery;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fastlane::slow::SlowPath;
use fastlane::table::{ArrayWriter, GracePeriods, HashWriter, Lpm4Writer, Lpm6Writer, State};

use self::framed_networks::{FramedNetworks, NetworkError};
use self::nat_blocks::{Assigned, NatBlocks};
use self::slice_groups::SliceGroups;
use self::slot_allocator::IndexAllocator;
use super::compile::{Compiled, Context, FramedRoute, LookupKeys, compile, keys};
use super::layout::counter_slots::WORDS;
use super::layout::nat_tables::{NAT_BLOCKS, NAT_USERS, NatBlock, NatUser};
use super::layout::session_rules::{Block, CHAIN, Rules};
use super::layout::slices::{HOLD_BUDGETS, HoldBudget, SLICES, SliceRecord};
use super::layout::{Framed, SessionRef, TunnelKey, UeKey, table};
use super::{BoxedWriter, Events, Private, TablesError};
use crate::session::{Session, SessionIndex};

pub use nat_blocks::NatCounts;
pub use publish_error::PublishError;
pub use slice_groups::{SliceTables, SliceTablesMut};
pub use table_recovery::Recovered;

/// Tables of rules and lookup keys.
pub struct Tables {
    /// Rules by session index.
    pub rules: BoxedWriter<ArrayWriter<Rules>>,
    /// Blocks of rules.
    pub blocks: BoxedWriter<ArrayWriter<Block>>,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: BoxedWriter<HashWriter<TunnelKey, SessionRef>>,
    /// UE addresses.
    pub users: BoxedWriter<HashWriter<UeKey, SessionRef>>,
    /// IPv4 networks behind UEs.
    pub framed4: BoxedWriter<Lpm4Writer>,
    /// IPv6 networks behind UEs.
    pub framed6: BoxedWriter<Lpm6Writer>,
    /// Owners of networks behind UEs.
    pub framed: BoxedWriter<ArrayWriter<Framed>>,
    /// Counter slots, read only.
    pub state: State<WORDS>,
    /// Users whose packets NAT translates.
    pub nat_users: BoxedWriter<ArrayWriter<NatUser>>,
    /// Owners of blocks of external ports.
    pub nat_blocks: BoxedWriter<ArrayWriter<NatBlock>>,
    /// Slices and DNNs of the groups that sessions are counted in.
    pub slices: BoxedWriter<ArrayWriter<SliceRecord>>,
    /// Limits of held packets, by group and association.
    pub hold_budgets: BoxedWriter<ArrayWriter<HoldBudget>>,
    /// Pending events of sessions.
    pub events: Events,
    /// Grace periods of the lanes that read the tables.
    pub grace_periods: GracePeriods,
}

impl Tables {
    /// Opens the tables of a running application. This is the only writer while it exists.
    ///
    /// # Errors
    /// If a table is missing, or another program writes it.
    pub fn attach(slow: &SlowPath) -> Result<Self, TablesError> {
        Ok(Self {
            rules: Box::new(slow.array_writer(table::RULES)?),
            blocks: Box::new(slow.array_writer(table::BLOCKS)?),
            tunnels: Box::new(slow.hash_writer(table::TUNNELS)?),
            users: Box::new(slow.hash_writer(table::USERS)?),
            framed4: Box::new(slow.lpm4_writer(table::FRAMED4)?),
            framed6: Box::new(slow.lpm6_writer(table::FRAMED6)?),
            framed: Box::new(slow.array_writer(table::FRAMED)?),
            state: slow.state(table::STATE)?,
            nat_users: Box::new(slow.array_writer(NAT_USERS)?),
            nat_blocks: Box::new(slow.array_writer(NAT_BLOCKS)?),
            slices: Box::new(slow.array_writer(SLICES)?),
            hold_budgets: Box::new(slow.array_writer(HOLD_BUDGETS)?),
            events: Events::Attached(slow.pending(table::EVENTS)?),
            grace_periods: slow.grace_periods(),
        })
    }

    /// Opens tables in private memory. They contain what a former `Tables` of the same memory has
    /// left, as after a kill. What the former one writes from now on is lost.
    ///
    /// # Errors
    /// If memory is insufficient.
    pub fn private(memory: &Private) -> Result<Self, TablesError> {
        Ok(Self {
            rules: memory.array(table::RULES)?,
            blocks: memory.array(table::BLOCKS)?,
            tunnels: memory.hash(table::TUNNELS)?,
            users: memory.hash(table::USERS)?,
            framed4: memory.lpm4(table::FRAMED4)?,
            framed6: memory.lpm6(table::FRAMED6)?,
            framed: memory.array(table::FRAMED)?,
            state: memory.state(table::STATE)?,
            nat_users: memory.array(NAT_USERS)?,
            nat_blocks: memory.array(NAT_BLOCKS)?,
            slices: memory.array(SLICES)?,
            hold_budgets: memory.array(HOLD_BUDGETS)?,
            events: Events::Private(memory.pending(table::EVENTS)?),
            grace_periods: GracePeriods::new(Arc::clone(memory.readers())),
        })
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Tables").field("rules", &self.rules.capacity()).finish_non_exhaustive()
    }
}

/// The published sessions; the only writer of the tables.
#[derive(Debug)]
pub struct Published {
    tables: Tables,
    context: Context,
    blocks: IndexAllocator,
    slots: IndexAllocator,
    networks: FramedNetworks,
    nat: NatBlocks,
    slices: SliceGroups,
    /// True if the published rules of a version are those that the current context compiles to.
    is_trusted: bool,
}

/// Stops a test before each change of a table, at a failpoint.
fn step() {
    #[cfg(test)]
    crate::tests::fail_if_due();
}

/// Entries added by a publication that may still fail.
#[derive(Debug, Default)]
struct AddedEntries {
    blocks: Vec<u32>,
    users: Vec<UeKey>,
    tunnels: Vec<TunnelKey>,
    framed: Vec<FramedRoute>,
}

impl Published {
    /// Opens the tables with their content. Unless they are new, call [`recover`](Self::recover)
    /// next.
    #[must_use]
    pub fn open(mut tables: Tables, context: Context) -> Self {
        let sessions = tables.rules.capacity();
        let slots = IndexAllocator::new(sessions, tables.state.capacity(), &tables.grace_periods);
        let blocks = IndexAllocator::new(0, tables.blocks.capacity(), &tables.grace_periods);
        let networks = FramedNetworks::new(&tables);
        let nat = NatBlocks::new(context.nat.clone(), &tables);
        let slices = SliceGroups::open(&mut tables);
        Self { tables, context, blocks, slots, networks, nat, slices, is_trusted: true }
    }

    /// Declares the published rules outdated, since they were compiled with another context.
    /// [`recover`](Self::recover) then publishes everything anew.
    pub fn distrust(&mut self) {
        self.is_trusted = false;
    }

    /// Returns the groups that sessions are counted in.
    #[must_use]
    pub const fn slices(&self) -> SliceTables<'_> {
        let Self { slices: groups, tables, context, .. } = self;
        SliceTables { groups, tables, network: &context.network }
    }

    /// Returns the groups that sessions are counted in, and their limits, for changes.
    pub const fn slices_mut(&mut self) -> SliceTablesMut<'_> {
        let Self { slices: groups, tables, context, .. } = self;
        SliceTablesMut { groups, tables, network: &context.network }
    }

    /// Checks if a session can be published, as far as is known in advance. Call it before the
    /// session is committed; it reserves nothing.
    ///
    /// # Errors
    /// The same as of [`publish`](Self::publish).
    pub fn check(&self, session: &Session) -> Result<(), PublishError> {
        let compiled = compile(session, &self.context)?;
        self.conflicts(session.id, &compiled)?;
        let room = self.blocks.left() as usize;
        if compiled.blocks.len() > room {
            return Err(PublishError::Exhausted("block of rules"));
        }
        self.has_room(session.id, &compiled)?;
        if !self.nat.has_room(&self.tables, session.id, &compiled.users) {
            return Err(PublishError::NatExhausted);
        }
        Ok(())
    }

    /// Checks if there is room for the session's new keys. Its old keys are removed only after
    /// that.
    fn has_room(&self, id: SessionIndex, compiled: &Compiled) -> Result<(), PublishError> {
        let Tables { users, tunnels, .. } = &self.tables;
        let new = compiled.users.iter().filter(|key| self.user(**key) != Some(id)).count();
        if users.len() + new > users.capacity() {
            return Err(PublishError::Exhausted("entry for a UE address"));
        }
        let is_new = |key: &&TunnelKey| self.tunnel(key.teid) != Some(id);
        let new = compiled.tunnels.iter().filter(is_new).count();
        if tunnels.len() + new > tunnels.capacity() {
            return Err(PublishError::Exhausted("entry for a tunnel"));
        }
        let framed = &compiled.framed;
        if !framed.is_empty() && !self.networks.has_room(&self.tables, framed, id) {
            return Err(PublishError::Exhausted("entry for a network"));
        }
        Ok(())
    }

    fn conflicts(&self, id: SessionIndex, compiled: &Compiled) -> Result<(), PublishError> {
        for key in &compiled.users {
            if let Some(session) = self.user(*key).filter(|owner| *owner != id) {
                return Err(PublishError::User { key: *key, session });
            }
        }
        for key in &compiled.tunnels {
            if let Some(session) = self.tunnel(key.teid).filter(|owner| *owner != id) {
                return Err(PublishError::Tunnel { teid: key.teid, session });
            }
        }
        for route in &compiled.framed {
            if let Some(session) = self.networks.owner(route).filter(|owner| *owner != id) {
                return Err(PublishError::Network { route: *route, session });
            }
        }
        Ok(())
    }

    /// Publishes a session. `before` is its last published form, if any: keys and counter slots
    /// that it no longer has are removed. Publishing the same again changes nothing for lanes.
    ///
    /// # Errors
    /// If it cannot be compiled, or there is no room.
    pub fn publish(
        &mut self,
        before: Option<&Session>,
        session: &Session,
    ) -> Result<(), PublishError> {
        let mut compiled = compile(session, &self.context)?;
        compiled.rules.set_owner(self.slices_mut().assign(session), session.peer);
        let block = self.nat.assign(&mut self.tables, session, &compiled.users);
        let old = before.map(|before| keys(before, &self.context));
        let mut added = AddedEntries::default();
        let keys = LookupKeys {
            users: std::mem::take(&mut compiled.users),
            tunnels: std::mem::take(&mut compiled.tunnels),
            framed: std::mem::take(&mut compiled.framed),
        };
        if let Err(error) = self.put(session.id, compiled, &keys, &mut added) {
            self.undo(session.id, added);
            if block == Assigned::New {
                self.nat.release(&mut self.tables, session);
            }
            return Err(error);
        }
        if let Some(old) = old {
            self.remove_keys(session.id, old.without(&keys));
        }
        if let Some(before) = before {
            self.free_slots(before, Some(session));
        }
        Ok(())
    }

    /// Writes everything up to the store of the rules.
    fn put(
        &mut self,
        id: SessionIndex,
        mut compiled: Compiled,
        keys: &LookupKeys,
        added: &mut AddedEntries,
    ) -> Result<(), PublishError> {
        self.put_blocks(&mut compiled, added)?;
        self.put_keys(id, keys, added)?;
        let old = self.chain(id);
        step();
        self.tables.rules.set(id.0 as usize, &compiled.rules)?;
        self.free_blocks(old);
        Ok(())
    }

    /// Writes the blocks of a session, the last one first, and links its rules to them.
    fn put_blocks(
        &mut self,
        compiled: &mut Compiled,
        added: &mut AddedEntries,
    ) -> Result<(), PublishError> {
        for _ in &compiled.blocks {
            let mut freed = Vec::new();
            let index = self.blocks.take_and_reclaim(&self.tables.grace_periods, &mut freed);
            self.clear_blocks(freed);
            added.blocks.push(index.ok_or(PublishError::Exhausted("block of rules"))?);
        }
        compiled.link(&added.blocks);
        for (index, block) in added.blocks.iter().zip(&compiled.blocks).rev() {
            step();
            self.tables.blocks.set(*index as usize, block)?;
        }
        Ok(())
    }

    fn put_keys(
        &mut self,
        id: SessionIndex,
        keys: &LookupKeys,
        added: &mut AddedEntries,
    ) -> Result<(), PublishError> {
        let found = SessionRef::to(id);
        for key in &keys.users {
            match self.user(*key) {
                Some(owner) if owner == id => {}
                Some(session) => return Err(PublishError::User { key: *key, session }),
                None => {
                    step();
                    self.tables.users.insert(key, &found)?;
                    added.users.push(*key);
                }
            }
        }
        for key in &keys.tunnels {
            match self.tunnel(key.teid) {
                Some(owner) if owner == id => {}
                Some(session) => return Err(PublishError::Tunnel { teid: key.teid, session }),
                None => {
                    step();
                    self.tables.tunnels.insert(key, &found)?;
                    added.tunnels.push(*key);
                }
            }
        }
        for route in &keys.framed {
            match self.networks.add(&mut self.tables, route, id) {
                Ok(true) => added.framed.push(*route),
                Ok(false) => {}
                Err(NetworkError::Table(error)) => return Err(error.into()),
                Err(NetworkError::Full) => {
                    return Err(PublishError::Exhausted("entry for a network"));
                }
                Err(NetworkError::Taken(session)) => {
                    return Err(PublishError::Network { route: *route, session });
                }
            }
        }
        Ok(())
    }

    /// Removes what a failed publication has added.
    fn undo(&mut self, id: SessionIndex, added: AddedEntries) {
        let AddedEntries { blocks, users, tunnels, framed } = added;
        self.remove_keys(id, LookupKeys { users, tunnels, framed });
        for place in blocks {
            self.tables.blocks.clear(place as usize);
            self.blocks.untake(place);
        }
    }

    fn remove_keys(&mut self, id: SessionIndex, keys: LookupKeys) {
        for key in &keys.users {
            if self.user(*key) == Some(id) {
                step();
                self.tables.users.remove(key);
            }
        }
        for key in &keys.tunnels {
            if self.tunnel(key.teid) == Some(id) {
                step();
                self.tables.tunnels.remove(key);
            }
        }
        for route in &keys.framed {
            self.networks.remove(&mut self.tables, route, id);
        }
    }

    /// Returns the indices of a session's published blocks.
    fn chain(&self, id: SessionIndex) -> Vec<u32> {
        let mut next = self.rules(id).map_or(0, |rules| rules.cold.block);
        let mut places = Vec::new();
        while let Some(place) = next.checked_sub(1).filter(|_| places.len() < CHAIN) {
            let Some(block) = self.tables.blocks.get(place as usize) else { break };
            if block.session != id.0 || places.contains(&place) {
                break;
            }
            places.push(place);
            next = block.next;
        }
        places
    }

    /// Frees unreferenced blocks. A lane may have read the rules that referred to them and look for
    /// the blocks only now, so they stay until all lanes have passed a turn.
    fn free_blocks(&mut self, places: Vec<u32>) {
        for place in places {
            self.blocks.retire(place);
        }
        let mut freed = Vec::new();
        self.blocks.reclaim(&self.tables.grace_periods, &mut freed);
        self.clear_blocks(freed);
    }

    fn clear_blocks(&mut self, places: Vec<u32>) {
        for place in places {
            step();
            self.tables.blocks.clear(place as usize);
        }
    }

    /// Removes a session from the tables; `session` is its last published form. Its counters remain
    /// readable until another session is assigned its slots.
    pub fn withdraw(&mut self, session: &Session) {
        self.take_down(session);
        self.release(session);
    }

    /// Removes a session from the tables but keeps its slots assigned until
    /// [`release`](Self::release), so that it may be published again.
    pub fn take_down(&mut self, session: &Session) {
        let old = self.chain(session.id);
        step();
        self.tables.rules.clear(session.id.0 as usize);
        self.remove_keys(session.id, keys(session, &self.context));
        self.free_blocks(old);
    }

    /// Returns the numbers of blocks of external ports.
    #[must_use]
    pub fn nat_counts(&self) -> NatCounts {
        self.nat.counts()
    }

    /// Returns the published rules of a session.
    #[must_use]
    pub fn rules(&self, id: SessionIndex) -> Option<&Rules> {
        self.tables.rules.get(id.0 as usize)
    }

    /// Returns the session of a UE address.
    #[must_use]
    pub fn user(&self, key: UeKey) -> Option<SessionIndex> {
        self.tables.users.get(&key).map(|found| found.value.session())
    }

    /// Returns the session of a tunnel whose TEID does not contain its index.
    #[must_use]
    pub fn tunnel(&self, teid: u32) -> Option<SessionIndex> {
        self.tables.tunnels.get(&TunnelKey { teid }).map(|found| found.value.session())
    }

    /// Returns the tables, for reading.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns the context that sessions are compiled with.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the tables by name with their entries and capacities.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'static str, usize, usize)> {
        let it = &self.tables;
        let used = |places: &IndexAllocator, capacity: usize| capacity - places.left() as usize;
        let (blocks, lines) = (it.blocks.capacity(), it.state.capacity());
        vec![
            (table::TUNNELS, it.tunnels.len(), it.tunnels.capacity()),
            (table::USERS, it.users.len(), it.users.capacity()),
            (table::FRAMED4, it.framed4.len(), it.framed4.capacity()),
            (table::FRAMED6, it.framed6.len(), it.framed6.capacity()),
            (table::BLOCKS, used(&self.blocks, blocks), blocks),
            // Of the counter slots only those beyond the one that each session has.
            (table::STATE, used(&self.slots, lines - it.rules.capacity()), lines),
        ]
    }
}
