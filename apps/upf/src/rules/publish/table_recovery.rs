//! Recovery: repairs the tables after another process has ended.

use super::slot_allocator::extra_slots;
use super::{PublishError, Published, step};
use crate::rules::compile::{FramedRoute, LookupKeys, keys};
use crate::rules::layout::slices::SliceGroup;
use crate::rules::layout::{TunnelKey, UeKey};
use crate::session::{Session, SessionIndex};

/// Result of a recovery.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Published sessions.
    pub sessions: usize,
    /// Sessions that were published anew.
    pub published: usize,
    /// Rules of deleted sessions that were removed.
    pub withdrawn: usize,
    /// Keys without an owner that were removed.
    pub keys: usize,
    /// Sessions that cannot be published, with the reason.
    pub failed: Vec<(SessionIndex, PublishError)>,
}

impl Published {
    /// Makes the tables match the records, whatever a former process left in them. `session`
    /// returns the record at an index, unless it is free; it is called up to twice.
    ///
    /// A session whose published version equals that of its record is completely published; at most
    /// keys that it had before are left over.
    pub fn recover(&mut self, session: impl FnMut(SessionIndex) -> Option<Session>) -> Recovered {
        self.recover_with(session, |_, _, _| {})
    }

    /// Recovers like [`recover`](Self::recover), and calls `seen` once with each session, its keys
    /// and its group.
    pub fn recover_with(
        &mut self,
        mut session: impl FnMut(SessionIndex) -> Option<Session>,
        mut seen: impl FnMut(&Session, LookupKeys, SliceGroup),
    ) -> Recovered {
        let mut recovered = Recovered::default();
        let mut late = Vec::new();
        let mut in_use = KeysInUse::default();
        let capacity = u32::try_from(self.tables.rules.capacity()).unwrap_or(u32::MAX);
        for id in (0..capacity).map(SessionIndex) {
            match session(id) {
                Some(session) => {
                    recovered.sessions += 1;
                    let group = self.slices_mut().assign(&session);
                    let keys = keys(&session, &self.context);
                    if self.take_over(&session, &keys, &mut in_use) {
                        late.push(id);
                    }
                    seen(&session, keys, group);
                }
                None if self.rules(id).is_some() => {
                    step();
                    self.tables.rules.clear(id.0 as usize);
                    recovered.withdrawn += 1;
                }
                None => {}
            }
        }
        recovered.keys = self.sweep(&in_use);
        self.nat.recover(&mut self.tables, |id| session(id).is_some());
        self.networks.recover(&mut self.tables, in_use.framed.into_iter());
        for id in late {
            let Some(session) = session(id) else { continue };
            match self.publish(None, &session) {
                Ok(()) => recovered.published += 1,
                Err(error) => recovered.failed.push((id, error)),
            }
        }
        recovered
    }

    /// Marks what a session uses. Returns true if its published rules are outdated.
    fn take_over(&mut self, session: &Session, keys: &LookupKeys, in_use: &mut KeysInUse) -> bool {
        for line in extra_slots(session) {
            self.slots.mark(line);
        }
        let places = self.chain(session.id);
        for place in &places {
            self.blocks.mark(*place);
        }
        let users = keys.users.iter().filter_map(|key| self.user_entry(key, session.id));
        users.for_each(|entry| in_use.users.add(entry));
        let tunnels = keys.tunnels.iter().filter_map(|key| self.tunnel_entry(key, session.id));
        tunnels.for_each(|entry| in_use.tunnels.add(entry));
        in_use.framed.extend(keys.framed.iter().map(|route| (*route, session.id)));
        let rules = self.rules(session.id).filter(|_| self.is_trusted);
        rules.is_none_or(|rules| rules.version() != session.version as u32)
    }

    fn user_entry(&self, key: &UeKey, id: SessionIndex) -> Option<u32> {
        let found = self.tables.users.get(key)?;
        (found.value.session() == id).then_some(found.entry.0)
    }

    fn tunnel_entry(&self, key: &TunnelKey, id: SessionIndex) -> Option<u32> {
        let found = self.tables.tunnels.get(key)?;
        (found.value.session() == id).then_some(found.entry.0)
    }

    /// Removes keys without an owner, and blocks that nothing refers to.
    fn sweep(&mut self, in_use: &KeysInUse) -> usize {
        let users = self.tables.users.iter();
        let users = users.filter(|(_, found)| !in_use.users.has(found.entry.0));
        let users: Vec<UeKey> = users.map(|(key, _)| key).collect();
        for key in &users {
            step();
            self.tables.users.remove(key);
        }
        let tunnels = self.tables.tunnels.iter();
        let tunnels = tunnels.filter(|(_, found)| !in_use.tunnels.has(found.entry.0));
        let tunnels: Vec<TunnelKey> = tunnels.map(|(key, _)| key).collect();
        for key in &tunnels {
            step();
            self.tables.tunnels.remove(key);
        }
        let blocks = self.tables.blocks.iter().map(|(place, _)| place);
        let blocks = blocks.map(|place| place as u32);
        let blocks: Vec<u32> = blocks.filter(|place| !self.blocks.is_used(*place)).collect();
        for place in &blocks {
            self.blocks.mark(*place);
        }
        self.free_blocks(blocks);
        users.len() + tunnels.len()
    }
}

/// Keys in use, by their entry numbers.
#[derive(Debug, Default)]
struct KeysInUse {
    users: EntrySet,
    tunnels: EntrySet,
    framed: Vec<(FramedRoute, SessionIndex)>,
}

/// Bit set of entry numbers.
#[derive(Debug, Default)]
struct EntrySet(Vec<u64>);

impl EntrySet {
    fn add(&mut self, entry: u32) {
        let word = entry as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (entry % 64);
    }

    fn has(&self, entry: u32) -> bool {
        self.0.get(entry as usize / 64).is_some_and(|word| word >> (entry % 64) & 1 == 1)
    }
}
