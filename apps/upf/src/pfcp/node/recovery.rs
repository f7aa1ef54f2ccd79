//! Recovery of the sessions of the previous process, in slices: requests are served first. Each
//! session is registered for reports, paths and counters.

use super::NodeContext;
use crate::session::{Session, SessionIndex};

/// Sessions recovered in one slice: about two milliseconds.
const SLICE: usize = 512;
/// Session indices examined in one slice.
const LOOKED_AT: u32 = 8192;

/// Sessions that are not recovered yet.
#[derive(Debug, Default)]
pub(super) struct RecoverySet {
    /// First index to recover; all from here to `end` remain, ...
    next: u32,
    end: u32,
    /// ... except those that have changed since the start, one bit each.
    early: Vec<u64>,
}

impl RecoverySet {
    /// Creates the set of all indices below `places`.
    pub(super) fn new(places: u32) -> Self {
        Self { next: 0, end: places, early: vec![0; places.div_ceil(64) as usize] }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Removes a session from the set. Returns true if it was in it.
    fn take(&mut self, id: SessionIndex) -> bool {
        let bit = 1 << (id.0 % 64);
        let word = self.early.get_mut(id.0 as usize / 64).filter(|_| id.0 >= self.next);
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }
}

/// Continues with the sessions that existed at the start.
pub(super) fn wake(cx: &mut NodeContext<'_>) {
    let places = cx.node.unfollowed.next..cx.node.unfollowed.end;
    let mut awake = 0;
    for place in places.take(LOOKED_AT as usize) {
        let id = SessionIndex(place);
        let found = cx.node.sessions.get(id).filter(|_| cx.node.unfollowed.take(id));
        cx.node.unfollowed.next = place + 1;
        let Some(session) = found else { continue };
        cx.node.paths.changed(None, Some(&session));
        cx.node.count(None, Some(&session));
        cx.node.markers.changed(cx.node.sessions.published(), id, cx.now);
        cx.usage(|usage, on| usage.found(on, session));
        awake += 1;
        if awake >= SLICE {
            break;
        }
    }
    if cx.node.unfollowed.is_empty() {
        cx.node.unfollowed = RecoverySet::default();
    }
}

/// Registers a session of the previous process before its first change.
pub(super) fn wake_for(
    cx: &mut NodeContext<'_>,
    before: Option<&Session>,
    after: Option<&Session>,
) {
    if cx.node.unfollowed.is_empty() {
        return;
    }
    let Some(id) = before.or(after).map(|session| session.id) else { return };
    if cx.node.unfollowed.take(id) && before.is_some() {
        cx.node.paths.changed(None, before);
        cx.node.count(None, before);
        cx.node.usage.follow(before);
    }
}
