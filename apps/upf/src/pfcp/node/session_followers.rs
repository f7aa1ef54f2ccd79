//! Parts of the node that follow sessions: paths, end markers, counts and usage reporting.
//!
//! [`changed`] tells each [`SessionFollower`] of a session that was established, modified or
//! removed, after the commit. A follower cannot refuse the change, and the response to the request
//! does not depend on it. Sessions of the previous process are registered in slices: requests are
//! served first.

use std::collections::BTreeMap;

use fastlane_pfcp::Message;

use super::{Node, NodeContext};
use crate::pfcp::paths::{Markers, Paths};
use crate::pfcp::sessions::Sessions;
use crate::session::{Session, SessionIndex, UsageReport};
use crate::transactions::{ReportCarrier, UsageEvent};
use crate::usage::{Outcome, ReportContext, Usage};

/// Session before and after a request.
pub(super) struct SessionChange {
    pub(super) before: Option<Session>,
    pub(super) after: Option<Session>,
}

/// Part of the node whose state follows from the sessions.
trait SessionFollower {
    /// Notes a change of a session. Both versions are as committed.
    fn session_changed(&mut self, change: &SessionChange, on: &mut ReportContext<'_, Sessions>);
}

impl SessionFollower for Paths {
    fn session_changed(&mut self, change: &SessionChange, _: &mut ReportContext<'_, Sessions>) {
        self.changed(change.before.as_ref(), change.after.as_ref());
    }
}

impl SessionFollower for Markers {
    fn session_changed(&mut self, change: &SessionChange, on: &mut ReportContext<'_, Sessions>) {
        if let Some(after) = &change.after {
            self.changed(on.backend.published(), after.id, on.now);
        }
    }
}

impl SessionFollower for Usage {
    fn session_changed(&mut self, change: &SessionChange, on: &mut ReportContext<'_, Sessions>) {
        self.changed(on, change.before.as_ref(), change.after.as_ref());
    }
}

/// Numbers of sessions and rules.
#[derive(Debug, Default)]
pub(super) struct SessionCounts {
    /// Number of sessions of each association.
    by_peer: BTreeMap<u16, usize>,
    /// Number of PDRs, FARs, QERs, URRs and BARs of all sessions.
    rules: [u64; 5],
}

impl SessionCounts {
    /// Returns the number of sessions of an association.
    pub(super) fn of_peer(&self, peer: u16) -> usize {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }

    /// Returns the number of PDRs, FARs, QERs, URRs and BARs of all sessions.
    pub(super) const fn rules(&self) -> [u64; 5] {
        self.rules
    }

    fn count(&mut self, before: Option<&Session>, after: Option<&Session>) {
        let of = |session: Option<&Session>| session.map_or([0; 5], Session::rules);
        let (old, new) = (of(before), of(after));
        for ((sum, old), new) in self.rules.iter_mut().zip(old).zip(new) {
            *sum = (*sum + new as u64).saturating_sub(old as u64);
        }
        if let Some(after) = after {
            *self.by_peer.entry(after.peer).or_default() += 1;
        }
        if let Some(count) = before.and_then(|before| self.by_peer.get_mut(&before.peer)) {
            *count = count.saturating_sub(1);
        }
    }
}

impl SessionFollower for SessionCounts {
    fn session_changed(&mut self, change: &SessionChange, _: &mut ReportContext<'_, Sessions>) {
        self.count(change.before.as_ref(), change.after.as_ref());
    }
}

/// Tells lanes and followers of a session change.
pub(super) fn changed(cx: &mut NodeContext<'_>, change: &SessionChange) {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    if before.map(|it| it.version) == after.map(|it| it.version) {
        return;
    }
    recover_before_change(cx, before, after);
    if let Some(after) = after {
        cx.out.rules_changed(after.id);
    }
    follow(cx, change);
}

/// Tells all followers of a session change.
fn follow(cx: &mut NodeContext<'_>, change: &SessionChange) {
    let Node { paths, counts, markers, usage, sessions, requests, .. } = &mut *cx.node;
    let on = &mut ReportContext { backend: sessions, requests, out: &mut *cx.out, now: cx.now };
    let followers: [&mut dyn SessionFollower; 4] = [paths, counts, markers, usage];
    for follower in followers {
        follower.session_changed(change, on);
    }
}

/// Exports the start or the end of a session that a request has changed, and the usage reports in
/// the response.
pub(super) fn export(cx: &mut NodeContext<'_>, change: &SessionChange, reports: &[UsageReport]) {
    if !cx.out.usage.are_exported() {
        return;
    }
    let (carrier, session) = match (&change.before, &change.after) {
        (Some(before), None) => (ReportCarrier::DeletionResponse, before),
        (_, Some(after)) => (ReportCarrier::ModificationResponse, after),
        (None, None) => return,
    };
    let counters = cx.node.sessions.published().counters(session.id.0);
    let out = &mut cx.out.usage;
    if change.before.is_none() {
        out.add(session, counters, UsageEvent::Start);
    }
    for report in reports {
        out.add(session, counters, UsageEvent::Report(carrier, *report));
    }
    if change.after.is_none() {
        let event = UsageEvent::End { is_deleted: true, unreported: Vec::new() };
        out.add(session, counters, event);
    }
}

/// Exports the end of a session that was removed without a usage report.
fn export_removal(cx: &mut NodeContext<'_>, session: &Session) {
    if !cx.out.usage.are_exported() {
        return;
    }
    let published = cx.node.sessions.published();
    let unreported = session.urrs.iter().map(|urr| {
        let counters = published.counters(urr.progress.line);
        let before = urr.progress.reported;
        (urr.id, std::array::from_fn(|i| counters[i].saturating_sub(before[i])))
    });
    let event = UsageEvent::End { is_deleted: false, unreported: unreported.collect() };
    cx.out.usage.add(session, published.counters(session.id.0), event);
}

/// Removes a session without a usage report.
pub(super) fn remove(cx: &mut NodeContext<'_>, session: Session) {
    if cx.node.sessions.remove(&session, cx.now) {
        cx.node.statistics.sessions_removed += 1;
        export_removal(cx, &session);
        changed(cx, &SessionChange { before: Some(session), after: None });
    } else {
        cx.node.statistics.table_failed += 1;
    }
}

/// Handles a session report response. `owner` is the association that the session belongs to from
/// now on, if the response says so.
pub(super) fn reported(
    cx: &mut NodeContext<'_>,
    id: SessionIndex,
    message: &Message<'_>,
    owner: Option<u16>,
) {
    let before = cx.node.sessions.get(id);
    match cx.usage(|usage, on| usage.answered(on, id, message, owner)) {
        Outcome::Done => {
            let after = cx.node.sessions.get(id);
            if before.as_ref().map(|it| it.peer) != after.as_ref().map(|it| it.peer) {
                changed(cx, &SessionChange { before, after });
            }
        }
        Outcome::Gone(id) => {
            // The control plane does not know the session, so no request will delete it (case
            // 45).
            if let Some(session) = before.filter(|session| session.id == id) {
                remove(cx, session);
            }
        }
    }
}

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
pub(super) fn recover_slice(cx: &mut NodeContext<'_>) {
    let places = cx.node.unfollowed.next..cx.node.unfollowed.end;
    let mut recovered = 0;
    for index in places.take(LOOKED_AT as usize) {
        let id = SessionIndex(index);
        let found = cx.node.sessions.get(id).filter(|_| cx.node.unfollowed.take(id));
        cx.node.unfollowed.next = index + 1;
        let Some(session) = found else { continue };
        follow(cx, &SessionChange { before: None, after: Some(session) });
        recovered += 1;
        if recovered >= SLICE {
            break;
        }
    }
    if cx.node.unfollowed.is_empty() {
        cx.node.unfollowed = RecoverySet::default();
    }
}

/// Registers a session of the previous process before its first change.
pub(super) fn recover_before_change(
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
        cx.node.counts.count(None, before);
        cx.node.usage.follow(before);
    }
}
