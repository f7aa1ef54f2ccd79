//! Session request handlers, and the effects of session changes on usage reporting, paths and
//! counters.
//!
//! Sessions of the previous process are registered for reports, paths and counters in slices:
//! requests are served first.

use std::net::IpAddr;

use fastlane_pfcp::ie::FSeid;
use fastlane_pfcp::{Message, MessageType};

use super::{Node, NodeContext, node_messages};
use crate::pfcp::Context;
use crate::pfcp::sessions::Sessions;
use crate::session::{Session, SessionIndex};
use crate::usage::Outcome;

/// Handles a session request. Returns the response and the session before and after.
pub(super) fn carry_out(
    cx: &mut NodeContext<'_>,
    message: &Message<'_>,
    context: &Context<'_>,
) -> (Vec<u8>, SessionChange) {
    let seid = message.header.seid.unwrap_or(0);
    let is_new = message.header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
    if !is_new && is_of_another(cx.node, seid, context.key.peer.ip()) {
        return (Sessions::unknown(message), SessionChange { before: None, after: None });
    }
    match message.header.message_type {
        MessageType::SESSION_ESTABLISHMENT_REQUEST => {
            let bytes = cx.node.sessions.establish(message, context);
            let after = established(&bytes).and_then(|id| cx.node.sessions.get(id));
            (bytes, SessionChange { before: None, after })
        }
        MessageType::SESSION_MODIFICATION_REQUEST => {
            let before = cx.node.sessions.find(seid);
            let bytes = cx.node.sessions.modify(message, context);
            let after = before.as_ref().and_then(|before| cx.node.sessions.get(before.id));
            (bytes, SessionChange { before, after })
        }
        _ => {
            let before = cx.node.sessions.find(seid);
            let bytes = cx.node.sessions.delete(message, context);
            let after = before.as_ref().and_then(|before| cx.node.sessions.get(before.id));
            (bytes, SessionChange { before, after })
        }
    }
}

/// Returns true if `from` is neither the session's CP F-SEID address nor its association's peer
/// address. A peer that guesses a SEID is told that the session does not exist.
fn is_of_another(node: &Node, seid: u64, from: IpAddr) -> bool {
    let Some(session) = node.sessions.find(seid) else { return false };
    let association = node.peers.get(session.peer).map(|found| found.peer.address.ip());
    session.cp_fseid.address != from && association != Some(from)
}

/// Propagates a session change to paths, end markers, usage reporting and counters.
pub(super) fn changed(cx: &mut NodeContext<'_>, followed: &SessionChange) {
    let (before, after) = (followed.before.as_ref(), followed.after.as_ref());
    if before.map(|it| it.version) == after.map(|it| it.version) {
        return;
    }
    recover_before_change(cx, before, after);
    cx.node.paths.changed(before, after);
    cx.node.count(before, after);
    if let Some(after) = after {
        cx.out.rules_changed(after.id);
        cx.node.markers.changed(cx.node.sessions.published(), after.id, cx.now);
    }
    cx.usage(|usage, on| usage.changed(on, before, after));
}

/// Removes a session without a usage report.
pub(super) fn remove(cx: &mut NodeContext<'_>, session: Session) {
    if cx.node.sessions.remove(&session, cx.now) {
        cx.node.statistics.sessions_removed += 1;
        changed(cx, &SessionChange { before: Some(session), after: None });
    } else {
        cx.node.statistics.table_failed += 1;
    }
}

/// Handles a session report response.
pub(super) fn reported(cx: &mut NodeContext<'_>, id: SessionIndex, message: &Message<'_>) {
    let before = cx.node.sessions.get(id);
    match cx.usage(|usage, on| usage.answered(on, id, message)) {
        Outcome::Done => {}
        Outcome::Gone(id) => {
            // The control plane does not know the session, so no request will delete it (case
            // 45).
            if let Some(session) = before.filter(|session| session.id == id) {
                remove(cx, session);
            }
        }
    }
}

/// Session before and after a request.
pub(super) struct SessionChange {
    pub(super) before: Option<Session>,
    pub(super) after: Option<Session>,
}

/// Returns the session that a response says was established.
fn established(bytes: &[u8]) -> Option<SessionIndex> {
    let (message, _) = Message::parse(bytes).ok()?;
    if node_messages::cause_of(&message) != 1 {
        return None;
    }
    let FSeid { seid, .. } = message.group().find().ok()??;
    Some(SessionIndex(seid as u32))
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
        cx.node.paths.changed(None, Some(&session));
        cx.node.count(None, Some(&session));
        cx.node.markers.changed(cx.node.sessions.published(), id, cx.now);
        cx.usage(|usage, on| usage.found(on, session));
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
        cx.node.count(None, before);
        cx.node.usage.follow(before);
    }
}
