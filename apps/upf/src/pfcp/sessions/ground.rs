//! Sessions as the backend of usage reporting.

use std::net::{IpAddr, SocketAddr};

use fastlane::table::EntryId;

use super::Sessions;
use crate::rules::layout::counter_slots::WORDS;
use crate::session::{Session, SessionId};
use crate::time::Now;
use crate::usage::{Ground, Lines};

impl Lines for Sessions {
    fn line(&self, line: u32) -> [u64; WORDS] {
        self.published.tables().state.read(EntryId(line))
    }
}

impl Ground for Sessions {
    fn capacity(&self) -> u32 {
        self.store.capacity()
    }

    fn session(&self, id: SessionId) -> Option<Session> {
        self.get(id)
    }

    fn next_version(&mut self) -> u64 {
        self.store.next_version()
    }

    fn commit(&mut self, session: &Session, now: Now) -> Result<(), String> {
        self.save(session, now).map_err(|error| error.to_string())
    }

    fn way(&self, session: &Session) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::new(session.control.address, self.settings.n4.port), None)
    }

    fn is_published(&self, session: &Session) -> bool {
        let rules = self.published.rules(session.id);
        rules.is_some_and(|rules| u64::from(rules.version()) == session.version & 0xFFFF_FFFF)
    }

    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionId, u64)) {
        let places = from as usize..(from as usize).saturating_add(count as usize);
        let events = &self.published.tables().events;
        events.scan_range(places, |id, seen| visit(SessionId(id.0), seen));
    }

    fn done(&mut self, id: SessionId, seen: u64) {
        self.published.tables().events.done(EntryId(id.0), seen);
    }
}
