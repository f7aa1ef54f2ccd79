//! Recovery of the sessions of the previous process, in slices: requests are served first. Each
//! session is registered for reports, paths and counters.

use super::Node;
use crate::pfcp::Outbox;
use crate::session::{Session, SessionId};
use crate::time::Now;

/// Sessions recovered in one slice: about two milliseconds.
const SLICE: usize = 512;
/// Session indices examined in one slice.
const LOOKED_AT: u32 = 8192;

/// Sessions that are not recovered yet.
#[derive(Debug, Default)]
pub(super) struct Unfollowed {
    /// First index to recover; all from here to `end` remain, ...
    next: u32,
    end: u32,
    /// ... except those that have changed since the start, one bit each.
    early: Vec<u64>,
}

impl Unfollowed {
    /// Creates the set of all indices below `places`.
    pub(super) fn new(places: u32) -> Self {
        Self { next: 0, end: places, early: vec![0; places.div_ceil(64) as usize] }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Removes a session from the set. Returns true if it was in it.
    fn take(&mut self, id: SessionId) -> bool {
        let bit = 1 << (id.0 % 64);
        let word = self.early.get_mut(id.0 as usize / 64).filter(|_| id.0 >= self.next);
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }
}

impl Node {
    /// Continues with the sessions that existed at the start.
    pub(super) fn wake(&mut self, now: Now, out: &mut Outbox) {
        let places = self.unfollowed.next..self.unfollowed.end;
        let mut awake = 0;
        for place in places.take(LOOKED_AT as usize) {
            let id = SessionId(place);
            let found = self.sessions.get(id).filter(|_| self.unfollowed.take(id));
            self.unfollowed.next = place + 1;
            let Some(session) = found else { continue };
            self.paths.changed(None, Some(&session));
            self.count(None, Some(&session));
            self.markers.changed(self.sessions.published(), id, now);
            self.usage(now, out, |usage, on| usage.found(on, session));
            awake += 1;
            if awake >= SLICE {
                break;
            }
        }
        if self.unfollowed.is_empty() {
            self.unfollowed = Unfollowed::default();
        }
    }

    /// Registers a session of the previous process before its first change.
    pub(super) fn wake_for(&mut self, before: Option<&Session>, after: Option<&Session>) {
        if self.unfollowed.is_empty() {
            return;
        }
        let Some(id) = before.or(after).map(|session| session.id) else { return };
        if self.unfollowed.take(id) && before.is_some() {
            self.paths.changed(None, before);
            self.count(None, before);
            self.usage.follow(before);
        }
    }
}
