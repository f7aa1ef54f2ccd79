//! Publishing sessions: what is in their records is put into the tables that lanes read.
//!
//! A session's blocks are written to places that no lane knows, then keys that it did not have,
//! then its rules: that store is the change. Keys that it has no longer go after it, and the places
//! of its old blocks are used again when every lane has passed a turn. A process that is killed
//! anywhere in between leaves at most keys too many and places that nothing refers to:
//! [`Published::recover`] finds them.
//!
//! # Lines of state
//! A session's first URR and first QER use the line with the session's own number, others a line
//! each, given by [`Published::assign`] when the rule is created and kept in the record. A line is
//! not zeroed when it changes hands: the new URR starts from what its counters are, for they only
//! ever grow.

mod entries;
mod lines;
mod networks;
mod places;
mod recover;
#[cfg(test)]
mod tests;

use fastlane::table::{EntryId, TableError};

use self::networks::{NetworkError, Networks};
use self::places::Places;
use super::tables::Tables;
use crate::rules::compile::{CompileError, Compiled, Context, FramedRoute, Keys, compile, keys};
use crate::rules::layout::key::{SessionRef, TunnelKey, UserKey};
use crate::rules::layout::rules::{Block, CHAIN, Rules};
use crate::rules::layout::state;
use crate::session::{Session, SessionId};

pub use recover::Recovered;

/// Why a session cannot be published. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Its rules cannot be carried out.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A table takes nothing.
    #[error(transparent)]
    Table(#[from] TableError),
    /// All of them are in use.
    #[error("no {0} is left; raise `app.sessions` or `app.limits.complex-sessions`")]
    None(&'static str),
    /// Another session has one of its tunnels.
    #[error("tunnel {teid:#010x} is session {}'s; choose another", session.0)]
    Tunnel {
        /// The tunnel.
        teid: u32,
        /// Whose it is.
        session: SessionId,
    },
    /// Another session has one of its user's addresses in that network instance.
    #[error("a user's address of the session is session {}'s; choose another", session.0)]
    User {
        /// The address.
        key: UserKey,
        /// Whose it is.
        session: SessionId,
    },
    /// Another session has one of the networks behind its user.
    #[error(
        "the network {}/{} is session {}'s; choose another",
        route.address, route.length, session.0
    )]
    Network {
        /// The network.
        route: FramedRoute,
        /// Whose it is.
        session: SessionId,
    },
}

/// What is published. It is the one writer of the tables.
#[derive(Debug)]
pub struct Published {
    tables: Tables,
    context: Context,
    blocks: Places,
    lines: Places,
    networks: Networks,
    /// Whether what is published of a version is what the context makes of it.
    is_trusted: bool,
}

/// Before each change of a table: tests stop there.
fn step() {
    #[cfg(test)]
    crate::store::fuse::burn();
}

/// What was added for a publication that may yet fail.
#[derive(Debug, Default)]
struct Added {
    blocks: Vec<u32>,
    users: Vec<UserKey>,
    tunnels: Vec<TunnelKey>,
    framed: Vec<FramedRoute>,
}

impl Published {
    /// Goes on with what the tables hold. Unless they are new, [`recover`](Self::recover) comes
    /// next.
    #[must_use]
    pub fn open(tables: Tables, context: Context) -> Self {
        let sessions = tables.rules.capacity();
        let lines = Places::new(sessions, tables.state.capacity(), &tables.readers);
        let blocks = Places::new(0, tables.blocks.capacity(), &tables.readers);
        let networks = Networks::new(&tables);
        Self { tables, context, blocks, lines, networks, is_trusted: true }
    }

    /// What is published was made with another context: [`recover`](Self::recover) publishes
    /// everything anew.
    pub fn distrust(&mut self) {
        self.is_trusted = false;
    }

    /// Whether a session can be published, as far as can be known before. To be asked before it is
    /// committed; what was found is not kept for it.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn check(&self, session: &Session) -> Result<(), PublishError> {
        let compiled = compile(session, &self.context)?;
        self.conflicts(session.id, &compiled)?;
        let room = self.blocks.left() as usize;
        if compiled.blocks.len() > room {
            return Err(PublishError::None("block of rules"));
        }
        self.has_room(session.id, &compiled)
    }

    /// Whether the keys that a session does not have yet can be added: what it has goes only after
    /// that.
    fn has_room(&self, id: SessionId, compiled: &Compiled) -> Result<(), PublishError> {
        let Tables { users, tunnels, .. } = &self.tables;
        let new = compiled.users.iter().filter(|key| self.user(**key) != Some(id)).count();
        if users.len() + new > users.capacity() {
            return Err(PublishError::None("place for a user's address"));
        }
        let is_new = |key: &&TunnelKey| self.tunnel(key.teid) != Some(id);
        let new = compiled.tunnels.iter().filter(is_new).count();
        if tunnels.len() + new > tunnels.capacity() {
            return Err(PublishError::None("place for a tunnel"));
        }
        if !self.networks.has_room(&self.tables, &compiled.framed, id) {
            return Err(PublishError::None("place for a network"));
        }
        Ok(())
    }

    fn conflicts(&self, id: SessionId, compiled: &Compiled) -> Result<(), PublishError> {
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

    /// Publishes a session as it is now. `before` is what was published of it last, if anything
    /// was: its keys go, and lines that it has no longer are given up. To publish the same again
    /// changes nothing that lanes see.
    ///
    /// # Errors
    /// When it cannot be carried out, or there is no room.
    pub fn publish(
        &mut self,
        before: Option<&Session>,
        session: &Session,
    ) -> Result<(), PublishError> {
        let Compiled { rules, blocks, users, tunnels, framed } = compile(session, &self.context)?;
        let old = before.map(|before| keys(before, &self.context));
        let mut added = Added::default();
        let keys = Keys { users, tunnels, framed };
        if let Err(error) = self.put(session.id, rules, blocks, &keys, &mut added) {
            self.undo(session.id, added);
            return Err(error);
        }
        if let Some(old) = old {
            self.remove_keys(session.id, old.without(&keys));
        }
        if let Some(before) = before {
            self.give_up_lines(before, Some(session));
        }
        Ok(())
    }

    /// Everything up to the store of the rules.
    fn put(
        &mut self,
        id: SessionId,
        mut rules: Rules,
        blocks: Vec<Block>,
        keys: &Keys,
        added: &mut Added,
    ) -> Result<(), PublishError> {
        rules.cold.block = self.put_blocks(blocks, added)?;
        self.put_keys(id, keys, added)?;
        let old = self.chain(id);
        step();
        self.tables.rules.set(id.0 as usize, &rules)?;
        self.give_up_blocks(old);
        Ok(())
    }

    /// Writes blocks, the last one first; 1 + the place of the first.
    fn put_blocks(&mut self, blocks: Vec<Block>, added: &mut Added) -> Result<u32, PublishError> {
        let mut next = 0;
        for mut block in blocks.into_iter().rev() {
            let mut freed = Vec::new();
            let place = self.blocks.take_and(&self.tables.readers, &mut freed);
            self.clear_blocks(freed);
            let place = place.ok_or(PublishError::None("block of rules"))?;
            added.blocks.push(place);
            block.next = next;
            step();
            self.tables.blocks.set(place as usize, &block)?;
            next = place + 1;
        }
        Ok(next)
    }

    fn put_keys(
        &mut self,
        id: SessionId,
        keys: &Keys,
        added: &mut Added,
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
                Err(NetworkError::Full) => return Err(PublishError::None("place for a network")),
                Err(NetworkError::Taken(session)) => {
                    return Err(PublishError::Network { route: *route, session });
                }
            }
        }
        Ok(())
    }

    /// Takes back what a publication that failed has added.
    fn undo(&mut self, id: SessionId, added: Added) {
        let Added { blocks, users, tunnels, framed } = added;
        self.remove_keys(id, Keys { users, tunnels, framed });
        for place in blocks {
            self.tables.blocks.clear(place as usize);
            self.blocks.untake(place);
        }
    }

    fn remove_keys(&mut self, id: SessionId, keys: Keys) {
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

    /// The places of a session's blocks, as they are published.
    fn chain(&self, id: SessionId) -> Vec<u32> {
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

    /// Gives up blocks that nothing refers to any more. A lane may have read the rules that did,
    /// and look for the blocks only now: they stay until all lanes have passed a turn.
    fn give_up_blocks(&mut self, places: Vec<u32>) {
        for place in places {
            self.blocks.retire(place);
        }
        let mut freed = Vec::new();
        self.blocks.reclaim(&self.tables.readers, &mut freed);
        self.clear_blocks(freed);
    }

    fn clear_blocks(&mut self, places: Vec<u32>) {
        for place in places {
            step();
            self.tables.blocks.clear(place as usize);
        }
    }

    /// Takes a session out of the tables: `session` is what was published of it last. Its counters
    /// can be read for as long as no other session is given its lines.
    pub fn withdraw(&mut self, session: &Session) {
        self.take_down(session);
        self.release(session);
    }

    /// The same, but the lines stay the session's, which may be published again, until
    /// [`release`](Self::release).
    pub fn take_down(&mut self, session: &Session) {
        let old = self.chain(session.id);
        step();
        self.tables.rules.clear(session.id.0 as usize);
        self.remove_keys(session.id, keys(session, &self.context));
        self.give_up_blocks(old);
    }

    /// What is published of a session.
    #[must_use]
    pub fn rules(&self, id: SessionId) -> Option<&Rules> {
        self.tables.rules.get(id.0 as usize)
    }

    /// Whose a user's address is.
    #[must_use]
    pub fn user(&self, key: UserKey) -> Option<SessionId> {
        self.tables.users.get(&key).map(|found| found.value.session())
    }

    /// Whose a tunnel is, of those whose number does not say it.
    #[must_use]
    pub fn tunnel(&self, teid: u32) -> Option<SessionId> {
        self.tables.tunnels.get(&TunnelKey { teid }).map(|found| found.value.session())
    }

    /// What a line has counted: octets up, packets up, octets down, packets down.
    #[must_use]
    pub fn counters(&self, line: u32) -> [u64; 4] {
        let words = self.tables.state.read(EntryId(line));
        [
            state::UPLINK_OCTETS,
            state::UPLINK_PACKETS,
            state::DOWNLINK_OCTETS,
            state::DOWNLINK_PACKETS,
        ]
        .map(|word| words[word])
    }

    /// When a line counted last, or, of a session's own, a packet of the session passed:
    /// nanoseconds of `CLOCK_MONOTONIC`; 0: never.
    #[must_use]
    pub fn last(&self, line: u32) -> u64 {
        self.tables.state.read(EntryId(line))[state::LAST]
    }

    /// The events of a line: bits of [`state::event`], and the lower bits of the version in the
    /// upper half.
    #[must_use]
    pub fn events(&self, line: u32) -> u64 {
        let marker = state::event::MARKER;
        self.tables.state.read(EntryId(line))[state::EVENTS] & !marker
    }

    /// Which end marker of a session was sent last: bits [`state::event::MARKER`].
    #[must_use]
    pub fn marker(&self, id: SessionId) -> u64 {
        self.tables.state.read(EntryId(id.0))[state::EVENTS] & state::event::MARKER
    }

    /// The tables, for reading what else is in them.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What sessions are compiled with.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }
}
