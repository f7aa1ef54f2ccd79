//! Tables as the backend of usage reporting.

use fastlane::table::EntryId;

use super::super::{SessionBackend, StateSlots};
use crate::rules::layout::counter_slots::WORDS;
use crate::rules::publish::Published;
use crate::session::{Session, SessionIndex};
use crate::store::Store;
use crate::time::Now;

/// Stored and published sessions for the time of a call.
pub(super) struct TableBackend<'a> {
    /// Session records.
    pub(super) store: &'a mut Store,
    /// Tables that lanes read and write.
    pub(super) published: &'a mut Published,
}

impl StateSlots for Published {
    fn line(&self, line: u32) -> [u64; WORDS] {
        self.tables().state.read(EntryId(line))
    }
}

impl StateSlots for TableBackend<'_> {
    fn line(&self, line: u32) -> [u64; WORDS] {
        self.published.line(line)
    }
}

impl SessionBackend for TableBackend<'_> {
    fn capacity(&self) -> u32 {
        self.store.capacity()
    }

    fn session(&self, id: SessionIndex) -> Option<Session> {
        self.store.get(id)
    }

    fn next_version(&mut self) -> u64 {
        self.store.next_version()
    }

    fn commit(&mut self, session: &Session, now: Now) -> Result<(), String> {
        let before = self.store.get(session.id);
        let committed = self.store.commit(session, None, now.monotonic);
        committed.map_err(|error| error.to_string())?;
        let published = self.published.publish(before.as_ref(), session);
        published.map_err(|error| error.to_string())
    }

    fn is_published(&self, session: &Session) -> bool {
        let version = session.version & 0xFFFF_FFFF;
        self.published.rules(session.id).is_some_and(|rules| u64::from(rules.version()) == version)
    }

    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionIndex, u64)) {
        let places = from as usize..from.saturating_add(count) as usize;
        let events = &self.published.tables().events;
        events.scan_range(places, |entry, seen| visit(SessionIndex(entry.0), seen));
    }

    fn done(&mut self, id: SessionIndex, seen: u64) {
        #[cfg(test)]
        crate::tests::fail_if_due();
        self.published.tables().events.done(EntryId(id.0), seen);
    }
}
