//! Session request handlers, and the effects of session changes on usage reporting, paths and
//! counters.

use std::net::IpAddr;

use fastlane_pfcp::ie::FSeid;
use fastlane_pfcp::{Message, MessageType};

use super::{Node, answer};
use crate::pfcp::sessions::Sessions;
use crate::pfcp::{Context, Outbox};
use crate::session::{Session, SessionId};
use crate::time::Now;
use crate::usage::{On, Outcome, Usage};

impl Node {
    /// Calls the usage reporting engine.
    pub(super) fn usage<R>(
        &mut self,
        now: Now,
        out: &mut Outbox,
        call: impl FnOnce(&mut Usage, &mut On<'_, Sessions>) -> R,
    ) -> R {
        let requests = &mut self.requests;
        call(&mut self.usage, &mut On { ground: &mut self.sessions, requests, out, now })
    }

    /// Handles a session request. Returns the response and the session before and after.
    pub(super) fn carry_out(
        &mut self,
        message: &Message<'_>,
        context: &Context<'_>,
    ) -> (Vec<u8>, Followed) {
        let seid = message.header.seid.unwrap_or(0);
        let is_new = message.header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
        if !is_new && self.is_of_another(seid, context.key.peer.ip()) {
            return (Sessions::unknown(message), Followed { before: None, after: None });
        }
        match message.header.message_type {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                let bytes = self.sessions.establish(message, context);
                let after = established(&bytes).and_then(|id| self.sessions.get(id));
                (bytes, Followed { before: None, after })
            }
            MessageType::SESSION_MODIFICATION_REQUEST => {
                let before = self.sessions.find(seid);
                let bytes = self.sessions.modify(message, context);
                let after = before.as_ref().and_then(|before| self.sessions.get(before.id));
                (bytes, Followed { before, after })
            }
            _ => {
                let before = self.sessions.find(seid);
                let bytes = self.sessions.delete(message, context);
                let after = before.as_ref().and_then(|before| self.sessions.get(before.id));
                (bytes, Followed { before, after })
            }
        }
    }

    /// Returns true if `from` is neither the session's CP F-SEID address nor its association's peer
    /// address. A peer that guesses a SEID is told that the session does not exist.
    fn is_of_another(&self, seid: u64, from: IpAddr) -> bool {
        let Some(session) = self.sessions.find(seid) else { return false };
        let association = self.peers.get(session.peer).map(|found| found.peer.address.ip());
        session.control.address != from && association != Some(from)
    }

    /// Propagates a session change to paths, end markers, usage reporting and counters.
    pub(super) fn changed(&mut self, now: Now, followed: &Followed, out: &mut Outbox) {
        let (before, after) = (followed.before.as_ref(), followed.after.as_ref());
        if before.map(|it| it.version) == after.map(|it| it.version) {
            return;
        }
        self.wake_for(before, after);
        self.paths.changed(before, after);
        self.count(before, after);
        if let Some(after) = after {
            out.rules_changed(after.id);
            self.markers.changed(self.sessions.published(), after.id, now);
        }
        self.usage(now, out, |usage, on| usage.changed(on, before, after));
    }

    /// Updates the number of sessions per association and the number of rules.
    pub(super) fn count(&mut self, before: Option<&Session>, after: Option<&Session>) {
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

    /// Removes a session without a usage report.
    pub(super) fn remove(&mut self, now: Now, session: Session, out: &mut Outbox) {
        if self.sessions.remove(&session, now) {
            self.statistics.sessions_removed += 1;
            self.changed(now, &Followed { before: Some(session), after: None }, out);
        } else {
            self.statistics.table_failed += 1;
        }
    }

    /// Handles a session report response.
    pub(super) fn reported(
        &mut self,
        now: Now,
        id: SessionId,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let before = self.sessions.get(id);
        match self.usage(now, out, |usage, on| usage.answered(on, id, message)) {
            Outcome::Done => {}
            Outcome::Gone(id) => {
                // The control plane does not know the session, so no request will delete it (case
                // 45).
                if let Some(session) = before.filter(|session| session.id == id) {
                    self.remove(now, session, out);
                }
            }
        }
    }
}

/// Session before and after a request.
pub(super) struct Followed {
    pub(super) before: Option<Session>,
    pub(super) after: Option<Session>,
}

/// Returns the session that a response says was established.
fn established(bytes: &[u8]) -> Option<SessionId> {
    let (message, _) = Message::parse(bytes).ok()?;
    if answer::cause_of(&message) != 1 {
        return None;
    }
    let FSeid { seid, .. } = message.group().find().ok()??;
    Some(SessionId(seid as u32))
}
