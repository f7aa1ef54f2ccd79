//! The flows in the table of the lanes, with what the follower knows of each. All tiers that
//! forward flows are written here.

use std::collections::HashMap;
use std::io;
use std::ops::DerefMut;

use fastlane_table::{EntryId, HashEntry, HashWriter, LaneState, TableError};

use super::flow_state::{FLOW_WORDS, FlowState};
use super::{FlowKey, FlowRecord, FlowTier, TierFlow, TierTotals};
use crate::conntrack::{Connection, ConntrackChange, Status};

/// One second in nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Writer of the table of flows.
pub(super) type FlowWriter = HashWriter<FlowKey, FlowRecord>;

/// A flow in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackedFlow {
    /// Keys of the original and of the reply direction.
    pub(super) keys: [FlowKey; 2],
    /// Entries of both directions; that of the reply once Linux has seen one.
    pub(super) entries: [Option<EntryId>; 2],
    pub(super) id: u32,
    pub(super) status: Status,
    /// Time at which Linux removes it without further packets, in nanoseconds.
    pub(super) expiry: u64,
    /// Time of the last packet that Linux knows of, in nanoseconds. It is another one than that of
    /// the last report: Linux reports changes that no packet caused, too.
    pub(super) known_use: u64,
    /// Timeout by a timeout policy, in seconds, if Linux has reported one.
    pub(super) policy_timeout: Option<u32>,
    /// Bytes of both directions when Linux was last told to be liberal about TCP windows.
    pub(super) liberal_at: u64,
    /// True until an event has shown that Linux reports what becomes of the connection.
    pub(super) is_unproven: bool,
    pub(super) closing: Closing,
}

/// Progress of the sweeps with a packet that closes the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closing {
    /// None was seen.
    #[default]
    Unseen,
    /// Linux was asked for the state once. It may not have got the packet yet.
    Asked,
    /// It was asked again: if it still holds the connection to be established, it has refused the
    /// packet, which may be from somebody else.
    AskedAgain,
}

impl Closing {
    /// Returns what holds after another question.
    pub(super) fn asked(self) -> Self {
        if self == Self::Unseen { Self::Asked } else { Self::AskedAgain }
    }
}

impl TrackedFlow {
    /// Creates a change of the connection that changes nothing.
    pub(super) fn change(&self) -> ConntrackChange {
        let (original, zone) = (self.keys[0].tuple(), self.keys[0].zone);
        ConntrackChange {
            original,
            zone,
            timeout: None,
            status: None,
            mark: None,
            be_liberal: false,
        }
    }

    /// Creates a change after which Linux reports the connection.
    pub(super) fn touch(&self) -> ConntrackChange {
        // A mask of zero selects no bit of the mark.
        ConntrackChange { mark: Some((0, 0)), ..self.change() }
    }

    /// Creates a change that clears these bits of the mark.
    pub(super) fn unmark(&self, mask: u32) -> ConntrackChange {
        ConntrackChange { mark: Some((0, mask)), ..self.change() }
    }

    /// Notes what Linux has reported of the timeout at a time in nanoseconds.
    pub(super) fn note_timeout(&mut self, connection: &Connection, now: u64) {
        if let Some(timeout) = connection.timeout {
            self.expiry = now + u64::from(timeout) * SECOND;
        }
        if connection.is_refreshed {
            self.known_use = now;
        }
    }

    fn is_tcp(&self) -> bool {
        i32::from(self.keys[0].protocol) == libc::IPPROTO_TCP
    }

    /// Returns true if Linux must be told again to be liberal: sequence numbers may have passed
    /// half of their range.
    pub(super) fn must_be_liberal(&self, octets: u64) -> bool {
        const STEP: u64 = 1 << 30;
        self.is_tcp() && octets.saturating_sub(self.liberal_at) >= STEP
    }
}

/// Returns the entries that a connection has in the table: both directions, or the original one
/// until Linux has seen a reply. The rules of Linux must judge the first reply, and its tracking
/// must know that there was one.
pub(super) fn directions(connection: &Connection) -> impl Iterator<Item = (FlowKey, FlowRecord)> {
    let count = if connection.status.has(Status::SEEN_REPLY) { 2 } else { 1 };
    FlowKey::of(connection).into_iter().zip(FlowRecord::of(connection)).take(count)
}

/// The flows.
pub(super) struct FlowTable<T> {
    table: T,
    /// Table of the tier inside the kernel, with the same flows.
    tier: Option<Box<dyn FlowTier>>,
    /// First refusal of the tier's table since [`take_failure`](Self::take_failure).
    failure: Option<io::Error>,
    /// Flows by the entry of the original direction.
    flows: Vec<Option<TrackedFlow>>,
    count: usize,
}

impl<T: DerefMut<Target = FlowWriter>> FlowTable<T> {
    /// Takes over a table. Its entries are unknown flows until they are [added](Self::add).
    pub(super) fn new(table: T, tier: Option<Box<dyn FlowTier>>) -> Self {
        let flows = vec![None; table.capacity()];
        Self { table, tier, failure: None, flows, count: 0 }
    }

    /// Returns the tier inside the kernel.
    pub(super) fn tier(&mut self) -> Option<&mut (dyn FlowTier + 'static)> {
        self.tier.as_deref_mut()
    }

    /// Returns the first refusal of the tier's table since the last call.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Returns the totals of the flow at an index in all tiers; zeros if there is none.
    pub(super) fn totals(&mut self, index: usize, lanes: &[LaneState<FLOW_WORDS>]) -> TierTotals {
        let entries = self.at(index).map_or([None; 2], |flow| flow.entries);
        let mut totals = TierTotals::default();
        for entry in entries.into_iter().flatten() {
            totals += self.tier_totals(entry);
            for lane in lanes {
                totals += FlowState::new(lane.at(entry)).totals();
            }
        }
        totals
    }

    /// Returns the totals of an entry in the tier inside the kernel; zeros if there is none.
    fn tier_totals(&mut self, entry: EntryId) -> TierTotals {
        let Some(tier) = &self.tier else { return TierTotals::default() };
        tier.totals(entry).unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            TierTotals::default()
        })
    }

    /// Makes the table of the tier equal to that of the lanes, after it was taken over.
    pub(super) fn complete_tier(&mut self) -> io::Result<()> {
        let Some(tier) = &mut self.tier else { return Ok(()) };
        let flow = |(key, found): (FlowKey, HashEntry<'_, FlowRecord>)| {
            (key, TierFlow { key, record: *found.value, entry: found.entry })
        };
        let mut missing: HashMap<FlowKey, TierFlow> = self.table.iter().map(flow).collect();
        for found in tier.flows()? {
            if missing.get(&found.key) == Some(&found) {
                missing.remove(&found.key);
            } else {
                tier.remove(&found.key)?;
            }
        }
        missing.values().try_for_each(|flow| tier.insert(flow))
    }

    /// Returns the number of flows.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of further flows for whose both directions there is room.
    pub(super) fn room(&self) -> usize {
        (self.table.capacity() - self.table.len()) / 2
    }

    /// Returns the number of indexes of [`at`](Self::at).
    pub(super) fn capacity(&self) -> usize {
        self.flows.len()
    }

    /// Returns the flow whose original direction has an entry id.
    pub(super) fn at(&mut self, index: usize) -> Option<&mut TrackedFlow> {
        self.flows.get_mut(index)?.as_mut()
    }

    /// Returns the index of the flow of a connection, if this very connection is in the table.
    pub(super) fn index(&self, connection: &Connection) -> Option<usize> {
        let index = self.table.get(&FlowKey::of(connection)[0])?.entry.index();
        self.flows[index].as_ref().is_some_and(|flow| flow.id == connection.id).then_some(index)
    }

    /// Returns the flow of a connection, if this very connection is in the table.
    pub(super) fn get(&mut self, connection: &Connection) -> Option<&mut TrackedFlow> {
        let index = self.index(connection)?;
        self.at(index)
    }

    /// Returns true if the table has the [`directions`] of this very connection.
    pub(super) fn has(&self, connection: &Connection) -> bool {
        directions(connection)
            .all(|(key, record)| self.table.get(&key).is_some_and(|found| *found.value == record))
    }

    /// Adds the [`directions`] of a connection that are missing, and what the follower knows of it
    /// at a time in nanoseconds. Returns true if it was no flow yet.
    ///
    /// # Errors
    /// Returns an error if the table is full or a lane delays the reuse of memory. The connection
    /// is not in the table then.
    pub(super) fn add(&mut self, connection: &Connection, now: u64) -> Result<bool, TableError> {
        let keys = FlowKey::of(connection);
        let policy_timeout = self.get(connection).and_then(|flow| flow.policy_timeout);
        let mut entries = [None; 2];
        for (entry, (key, record)) in entries.iter_mut().zip(directions(connection)) {
            *entry = match self.put(&key, &record) {
                Ok(entry) => Some(entry),
                Err(error) => {
                    keys.iter().for_each(|key| self.remove_key(key));
                    return Err(error);
                }
            };
        }
        let [Some(original), _] = entries else { return Ok(false) };
        let mut flow = TrackedFlow {
            keys,
            entries,
            id: connection.id,
            status: connection.status,
            expiry: now,
            known_use: now,
            policy_timeout,
            liberal_at: 0,
            is_unproven: false,
            closing: Closing::default(),
        };
        flow.note_timeout(connection, now);
        let is_new = self.flows[original.index()].replace(flow).is_none();
        self.count += usize::from(is_new);
        Ok(is_new)
    }

    /// Adds a flow anew that Linux has not closed, so that lanes and the tier forward it again.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(super) fn reopen(&mut self, connection: &Connection, now: u64) -> Result<(), TableError> {
        let former = self.get(connection).copied();
        self.remove(connection);
        self.add(connection, now)?;
        if let (Some(flow), Some(former)) = (self.get(connection), former) {
            flow.policy_timeout = former.policy_timeout;
            flow.known_use = former.known_use;
        }
        Ok(())
    }

    /// Puts a direction into the tables, unless it is there.
    fn put(&mut self, key: &FlowKey, record: &FlowRecord) -> Result<EntryId, TableError> {
        if let Some(found) = self.table.get(key) {
            if found.value == record {
                return Ok(found.entry);
            }
            // Another connection's entry is not changed in place: lanes have state of it.
            self.remove_key(key);
        }
        let entry = self.table.insert(key, record)?;
        let flow = TierFlow { key: *key, record: *record, entry };
        self.change_tier(|tier| tier.insert(&flow));
        Ok(entry)
    }

    /// Removes a connection, whatever its number. Returns true if a direction was in the table.
    pub(super) fn remove(&mut self, connection: &Connection) -> bool {
        let keys = FlowKey::of(connection);
        let is_known = keys.iter().any(|key| self.table.get(key).is_some());
        keys.iter().for_each(|key| self.remove_key(key));
        is_known
    }

    /// Removes the directions of a connection that has ended, but none that another one has taken
    /// since. Returns true if one was in the table.
    pub(super) fn remove_ended(&mut self, connection: &Connection) -> bool {
        let is_its = |found: HashEntry<'_, FlowRecord>| found.value.id == connection.id;
        let mut keys = FlowKey::of(connection).to_vec();
        keys.retain(|key| self.table.get(key).is_some_and(is_its));
        keys.iter().for_each(|key| self.remove_key(key));
        !keys.is_empty()
    }

    /// Removes the flow at an index.
    pub(super) fn remove_at(&mut self, index: usize) {
        if let Some(flow) = self.at(index).copied() {
            flow.keys.iter().for_each(|key| self.remove_key(key));
        }
    }

    /// Removes all entries but those that are kept. Returns the number of flows that left.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&FlowKey, &FlowRecord) -> bool) -> usize {
        let stale = self.table.iter().filter(|(key, found)| !is_kept(key, found.value));
        let stale: Vec<_> = stale.map(|(key, found)| (key, found.value.is_reply)).collect();
        stale.iter().for_each(|(key, _)| self.remove_key(key));
        stale.iter().filter(|(_, is_reply)| *is_reply == 0).count()
    }

    /// Changes the table of the tier, if there is one, and keeps its refusal.
    fn change_tier(&mut self, change: impl FnOnce(&mut dyn FlowTier) -> io::Result<()>) {
        if let Some(tier) = self.tier.as_deref_mut()
            && let Err(error) = change(tier)
        {
            self.failure.get_or_insert(error);
        }
    }

    /// Removes an entry and, with the original direction, what the follower knows of the flow.
    fn remove_key(&mut self, key: &FlowKey) {
        let Some(found) = self.table.get(key) else { return };
        let index = found.entry.index();
        self.table.remove(key);
        self.change_tier(|tier| tier.remove(key));
        let is_original = |flow: &TrackedFlow| flow.keys[0] == *key;
        if self.flows[index].as_ref().is_some_and(is_original) {
            self.flows[index] = None;
            self.count -= 1;
        }
    }
}
