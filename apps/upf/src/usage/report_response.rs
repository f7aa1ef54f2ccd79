//! Session report responses (clause 7.5.9).

use fastlane_pfcp::ie::{
    BarId, CauseIe, DlBufferingDuration, DlBufferingSuggestedPacketCount,
    DownlinkDataNotificationDelay, FSeid, PfcpsrrspFlags, SuggestedBufferingPacketsCount,
};
use fastlane_pfcp::{Cause, Group, IeType, Message};

use super::engine::{AGAIN, ReportContext, SessionBackend, Usage};
use crate::session::{Buffering, Session, SessionIndex};

/// Action that a session report response requires of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No further action.
    Done,
    /// The control plane does not know the session (cause 65). Remove it here too.
    Gone(SessionIndex),
}

impl Usage {
    /// Handles a session report response. The report is acknowledged and never sent again;
    /// buffering changes as requested.
    pub fn answered<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        id: SessionIndex,
        response: &Message<'_>,
    ) -> Outcome {
        let sequence = response.header.sequence;
        self.flying.remove(&sequence);
        let is_error = self.errors.get(&id) == Some(&sequence);
        if is_error {
            self.errors.remove(&id);
        }
        let group = response.group();
        let cause = group.find::<CauseIe>().ok().flatten().map(|cause| Cause(cause.0));
        if cause == Some(Cause::SESSION_CONTEXT_NOT_FOUND) {
            self.statistics.unknown_there += 1;
            return Outcome::Gone(id);
        }
        let again = [
            Cause::NO_ESTABLISHED_PFCP_ASSOCIATION,
            Cause::PFCP_ENTITY_IN_CONGESTION,
            Cause::SYSTEM_FAILURE,
        ];
        let Some(cause) = cause.filter(|cause| !again.contains(cause)) else {
            self.timers.sooner(id, on.now.monotonic.saturating_add(AGAIN));
            return Outcome::Done;
        };
        let is_accepted = cause == Cause::REQUEST_ACCEPTED;
        self.statistics.refused += u64::from(!is_accepted);
        let Some(mut session) = on.backend.session(id) else { return Outcome::Done };
        let before = session.clone();
        session.reporting.unacknowledged.retain(|report| report.message != sequence);
        let is_new = is_accepted && apply(&mut session, group);
        if is_new || session != before {
            session.version = on.backend.next_version();
            if is_accepted && group_drops(group) {
                session.discarded = session.version;
            }
            if let Err(error) = on.backend.commit(&session, on.now) {
                tracing::error!(
                    "the response for session {:#x} cannot be stored: {error}",
                    session.seid
                );
                self.statistics.not_kept += 1;
                self.timers.sooner(id, on.now.monotonic.saturating_add(AGAIN));
                return Outcome::Done;
            }
            if is_new {
                on.out.rules_changed(id);
            }
        }
        self.evaluate(on, id, None);
        Outcome::Done
    }
}

/// Applies a response to a session. Returns true if lanes are affected.
fn apply(session: &mut Session, group: Group<'_>) -> bool {
    if let Ok(Some(seid)) = group.find::<FSeid>() {
        let address = seid.v4.map(Into::into).or(seid.v6.map(Into::into));
        if let Some(address) = address {
            session.cp_fseid.seid = seid.seid;
            session.cp_fseid.address = address;
        }
    }
    let mut is_new = group_drops(group);
    for update in group.groups(IeType::UPDATE_BAR_IN_REPORT) {
        let Ok(BarId(id)) = update.need::<BarId>() else { continue };
        if let Some(bar) = session.bars.iter_mut().find(|bar| bar.id == id) {
            is_new |= buffering(bar, update);
        }
    }
    is_new
}

fn group_drops(group: Group<'_>) -> bool {
    let flags = group.find::<PfcpsrrspFlags>().ok().flatten();
    flags.is_some_and(|flags| flags.has(PfcpsrrspFlags::DROBU))
}

/// Applies Update BAR of a session report response (table 7.5.9.2-1). Invalid IEs are ignored,
/// because a response cannot be refused.
fn buffering(bar: &mut Buffering, update: Group<'_>) -> bool {
    let before = *bar;
    if let Ok(Some(DownlinkDataNotificationDelay(delay))) = update.find() {
        bar.notification_delay_ms = u32::from(delay) * 50;
    }
    if let Ok(Some(duration)) = update.find::<DlBufferingDuration>() {
        let seconds = duration.0.seconds().map_or(u64::MAX, u64::from);
        bar.duration_ms = Some(seconds.saturating_mul(1000));
    }
    if let Ok(Some(DlBufferingSuggestedPacketCount(count))) = update.find() {
        bar.packets = Some(count.into());
    }
    if let Ok(Some(SuggestedBufferingPacketsCount(count))) = update.find() {
        bar.packets = Some(count.into());
    }
    *bar != before
}
