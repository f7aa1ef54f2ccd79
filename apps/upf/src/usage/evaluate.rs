//! Evaluation of a session: due reports are committed, then sent, and removed by their responses
//! (TS 29.244 clause 7.5.9).

use fastlane_pfcp::ie::{
    BarId, CauseIe, DlBufferingDuration, DlBufferingSuggestedPacketCount,
    DownlinkDataNotificationDelay, FSeid, PfcpsrrspFlags, SuggestedBufferingPacketsCount,
};
use fastlane_pfcp::{Cause, Group, IeType, Message};

use super::engine::{AGAIN, DELAYED, MOST_REQUESTS, ReportContext, SessionBackend, Usage};
use super::measurement::{Meter, later, next, settle};
use super::reports::{collect_all, report_request};
use crate::rules::layout::counter_slots::{
    DOWNLINK_OCTETS, DOWNLINK_PACKETS, UPLINK_OCTETS, UPLINK_PACKETS, event,
};
use crate::rules::layout::message::SessionEvent;
use crate::session::{
    Buffering, DownlinkData, Pdr, Session, SessionIndex, Source, Unacknowledged, UsageReportTrigger,
};
use crate::time::{MILLISECOND, Now, SECOND};
use crate::transactions::{ReportCarrier, UsageEvent};

/// Maximum number of usage reports in one request, so that it fits a datagram of 1500 bytes.
const IN_REQUEST: usize = 10;

impl Usage {
    /// Evaluates a session and sends due reports. `hint` is a lane message about it.
    pub(super) fn evaluate<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        id: SessionIndex,
        hint: Option<&SessionEvent>,
    ) {
        match on.backend.session(id) {
            Some(session) => self.evaluate_session(on, &session.clone(), session, hint),
            None => self.timers.set(id, None),
        }
    }

    /// Evaluates a session. `before` is the stored version, `session` the one to become.
    pub(super) fn evaluate_session<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        before: &Session,
        mut session: Session,
        hint: Option<&SessionEvent>,
    ) {
        let meters: Vec<Meter> = session
            .urrs
            .iter()
            .map(|urr| Meter::read(on.backend, urr, session.version))
            .zip(&session.urrs)
            .map(|(meter, urr)| meter.told(urr.progress.line, hint))
            .collect();
        for (urr, meter) in session.urrs.iter_mut().zip(&meters) {
            settle(urr, meter, on.now);
        }
        let own = Meter::of(on.backend.line(session.id.0), session.version);
        self.usage(on, &mut session, &meters, &own);
        self.downlink(on, &mut session, &own, hint);
        let is_new = session != *before || !on.backend.is_published(&session);
        if is_new && !self.keep(on, &mut session) {
            let again = on.now.monotonic.saturating_add(SECOND);
            self.timers.set(session.id, Some(again));
            return;
        }
        export(on, before, &session);
        self.send_all(on, &session);
        self.arm(on, &session, &meters, &own);
    }

    /// Commits and publishes a changed session. Returns false if that failed.
    pub(super) fn keep<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        session: &mut Session,
    ) -> bool {
        session.version = on.backend.next_version();
        match on.backend.commit(session, on.now) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(
                    "usage of session {:#x} cannot be stored yet: {error}",
                    session.seid
                );
                self.statistics.not_kept += 1;
                false
            }
        }
    }

    /// Creates due usage and inactivity reports, unless earlier ones wait for a response.
    fn usage<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        session: &mut Session,
        meters: &[Meter],
        own: &Meter,
    ) {
        let is_inactive = inactivity(on, session, meters, own);
        let is_waiting = session.reporting.unacknowledged.iter().any(|it| it.downlink.is_none());
        if is_waiting {
            return;
        }
        let peer = self.destination(on, session).0;
        if on.requests.room_for(peer) < MOST_REQUESTS {
            // A silent peer must not delay the reports to others.
            if is_inactive || session.urrs.iter().any(|urr| !urr.progress.due.is_empty()) {
                self.parked.add(peer, session.id);
            }
            return;
        }
        let mut usage =
            collect_all(&mut session.urrs, meters, on.now, |_| UsageReportTrigger::NONE);
        if is_inactive {
            session.reporting.is_inactive = true;
            session.reporting.awaited_from = awaited(on.now, session, meters, own);
        }
        let mut is_inactivity = is_inactive;
        while is_inactivity || !usage.is_empty() {
            let rest = usage.split_off(usage.len().min(IN_REQUEST));
            let message = on.requests.sequence();
            self.statistics.usage_reports += usage.len() as u64;
            self.statistics.inactivity_reports += u64::from(is_inactivity);
            let report = Unacknowledged { message, is_inactivity, downlink: None, usage };
            session.reporting.unacknowledged.push(report);
            (usage, is_inactivity) = (rest, false);
        }
    }

    /// Creates a downlink data report for the first buffered packet of a PDR (clause 5.2.4), once
    /// until buffering ends or the packets were discarded because their time was over.
    fn downlink<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        session: &mut Session,
        own: &Meter,
        hint: Option<&SessionEvent>,
    ) {
        if own.has(event::EXPIRED) && !session.reporting.notified.is_empty() {
            // The rules get a version, under which the lane raises the event for the next packet.
            session.reporting.notified.clear();
            return;
        }
        let delayed = self.delayed.get(&session.id).copied();
        let hint = hint.filter(|hint| hint.events & event::HELD != 0);
        if !own.has(event::HELD) && hint.is_none() && delayed.is_none() {
            return;
        }
        let Some((data, at)) = delayed.or_else(|| held(on, session, hint)) else { return };
        let is_held = |pdr: &Pdr| pdr.id == data.pdr && is_held(session, pdr);
        if !session.pdrs.iter().any(is_held) || session.reporting.notified.contains(&data.pdr) {
            self.delayed.remove(&session.id);
            return;
        }
        if at > on.now.monotonic && self.delayed.len() < DELAYED {
            self.delayed.insert(session.id, (data, at));
            return;
        }
        if on.requests.room_for(self.destination(on, session).0) == 0 {
            self.delayed.insert(session.id, (data, on.now.monotonic.saturating_add(SECOND)));
            return;
        }
        self.delayed.remove(&session.id);
        let message = on.requests.sequence();
        session.reporting.notified.push(data.pdr);
        let downlink = Some(data);
        let report = Unacknowledged { message, downlink, ..Unacknowledged::default() };
        session.reporting.unacknowledged.push(report);
        self.statistics.downlink_reports += 1;
    }

    /// Sends committed reports that are not pending: new ones, those of the previous process, and
    /// those without response.
    fn send_all<G: SessionBackend>(&mut self, on: &mut ReportContext<'_, G>, session: &Session) {
        for report in &session.reporting.unacknowledged {
            if self.flying.get(&report.message) != Some(&session.id) {
                let bytes = report_request(session, report);
                self.send(on, session, report.message, bytes);
            }
        }
    }

    /// Sets the timer of the next evaluation.
    fn arm<G: SessionBackend>(
        &mut self,
        on: &ReportContext<'_, G>,
        session: &Session,
        meters: &[Meter],
        own: &Meter,
    ) {
        let now = on.now.monotonic;
        let urrs =
            session.urrs.iter().zip(meters).filter_map(|(urr, meter)| next(urr, meter, on.now));
        let unsent = |it: &&Unacknowledged| self.flying.get(&it.message) != Some(&session.id);
        let again = session.reporting.unacknowledged.iter().find(unsent).map(|_| now + AGAIN);
        // Reports that wait for an earlier response are evaluated when it arrives.
        let is_waiting = !session.reporting.unacknowledged.is_empty();
        let is_due = session.urrs.iter().any(|urr| !urr.progress.due.is_empty());
        let is_parked = self.parked.has(session.id);
        let busy = (is_due && !is_waiting && !is_parked).then(|| now.saturating_add(SECOND));
        let delayed = self.delayed.get(&session.id).map(|(_, at)| *at);
        let quiet = session.inactivity_s.filter(|seconds| *seconds != 0).map(|seconds| {
            let at = later(awaited(on.now, session, meters, own), seconds);
            if session.reporting.is_inactive || at <= now { later(now, seconds) } else { at }
        });
        let all = [again, busy, delayed, quiet];
        let at = urrs.chain(all.into_iter().flatten()).min();
        self.timers.set(session.id, at);
    }
}

/// Exports the usage reports that an evaluation has made.
fn export<G: SessionBackend>(on: &mut ReportContext<'_, G>, before: &Session, session: &Session) {
    if !on.out.usage.are_exported() {
        return;
    }
    let is_new = |report: &&Unacknowledged| {
        !before.reporting.unacknowledged.iter().any(|it| it.message == report.message)
    };
    let words = on.backend.line(session.id.0);
    let counters = [UPLINK_OCTETS, UPLINK_PACKETS, DOWNLINK_OCTETS, DOWNLINK_PACKETS];
    let counters = counters.map(|word| words[word]);
    for report in session.reporting.unacknowledged.iter().filter(is_new) {
        for usage in &report.usage {
            let event = UsageEvent::Report(ReportCarrier::ReportRequest, *usage);
            on.out.usage.add(session, counters, event);
        }
    }
}

/// Returns the time of the last packet of a session.
fn last(meters: &[Meter], own: &Meter) -> u64 {
    meters.iter().map(|meter| meter.last).max().unwrap_or(0).max(own.last)
}

/// Returns true if an inactivity report is due (clause 5.11.3).
fn inactivity<G>(
    on: &ReportContext<'_, G>,
    session: &mut Session,
    meters: &[Meter],
    own: &Meter,
) -> bool {
    let reporting = &mut session.reporting;
    let Some(seconds) = session.inactivity_s.filter(|seconds| *seconds != 0) else {
        (reporting.awaited_from, reporting.is_inactive) = (0, false);
        return false;
    };
    if reporting.is_inactive && last(meters, own) > reporting.awaited_from {
        reporting.is_inactive = false;
    }
    let at = later(awaited(on.now, session, meters, own), seconds);
    !session.reporting.is_inactive && at <= on.now.monotonic
}

/// Returns the start of inactivity: the last packet, or the request of the control plane.
fn awaited(now: Now, session: &Session, meters: &[Meter], own: &Meter) -> u64 {
    let asked = match session.reporting.awaited_from {
        0 => now.monotonic_of(session.established),
        asked => asked,
    };
    last(meters, own).max(asked)
}

/// Returns the buffered packet to report and the time of the report. The data come from a lane
/// message. If that was lost, they are those of the first PDR that buffers, unless one was reported
/// before: the event does not tell the PDR.
fn held<G>(
    on: &ReportContext<'_, G>,
    session: &Session,
    hint: Option<&SessionEvent>,
) -> Option<(DownlinkData, u64)> {
    let is_new =
        |pdr: &&Pdr| is_held(session, pdr) && !session.reporting.notified.contains(&pdr.id);
    let told = hint.and_then(|hint| {
        let pdr = session.pdrs.iter().find(|pdr| pdr.id == hint.pdr).filter(is_new)?;
        let data = DownlinkData {
            pdr: pdr.id,
            // Packets from the data network have no container: their QoS flow is that of the rules.
            qfi: Some(hint.qfi).filter(|qfi| *qfi != 0).or_else(|| qfi_of(session, pdr)),
            dscp: Some(hint.dscp),
        };
        Some((pdr, data, hint.at))
    });
    let (pdr, data, at) = match told {
        Some(told) => told,
        None if hint.is_some() => return None,
        // Raised again for a packet of a PDR that was reported: its rules have a new version.
        None if !session.reporting.notified.is_empty() => return None,
        None => {
            let pdr = session.pdrs.iter().find(is_new)?;
            let data = DownlinkData { pdr: pdr.id, qfi: qfi_of(session, pdr), dscp: None };
            (pdr, data, on.now.monotonic)
        }
    };
    let far = session.fars.iter().find(|far| far.id == pdr.far)?;
    let bar = session.bars.iter().find(|bar| Some(bar.id) == far.bar);
    let delay = bar.map_or(0, |bar| u64::from(bar.notification_delay_ms) * MILLISECOND);
    Some((data, at.min(on.now.monotonic).saturating_add(delay)))
}

/// Returns the QoS flow that the packets of a PDR are marked with.
fn qfi_of(session: &Session, pdr: &Pdr) -> Option<u8> {
    let qers = session.qers.iter().filter(|qer| pdr.qers.contains(&qer.id));
    qers.filter_map(|qer| qer.qfi).next()
}

/// Returns true if a PDR buffers packets and the control plane wants a notification.
fn is_held(session: &Session, pdr: &Pdr) -> bool {
    let far = session.fars.iter().find(|far| far.id == pdr.far);
    pdr.source != Source::Access && far.is_some_and(|far| far.actions.buffer && far.actions.notify)
}

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
    /// buffering changes as requested. A response may hand the session over to another member of
    /// an SMF set (clause 5.22): `owner` is the association of the Node ID in it.
    pub fn answered<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        id: SessionIndex,
        response: &Message<'_>,
        owner: Option<u16>,
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
            Cause::REDIRECTION_REQUESTED,
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
        session.peer = owner.filter(|_| is_accepted).unwrap_or(session.peer);
        if session.cp_fseid != before.cp_fseid {
            self.recall(on, &session);
        }
        if is_new || session != before {
            session.version = on.backend.next_version();
            if is_accepted && group_drops(group) {
                session.discarded = session.version;
                session.reporting.notified.clear();
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
