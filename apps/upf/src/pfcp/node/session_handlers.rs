//! Session request handlers, and the effects of session changes on usage reporting, paths and
//! counters.

use std::net::IpAddr;

use fastlane_pfcp::ie::FSeid;
use fastlane_pfcp::{Message, MessageType};

use super::{Node, NodeContext, node_messages, recovery};
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
    recovery::wake_for(cx, before, after);
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
