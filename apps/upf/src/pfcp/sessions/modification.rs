//! Modification and deletion of sessions, and removal without a request.
//!
//! The last report of a URR that a request removes, or takes from its last PDR, is in the response,
//! which is committed with the session. Packets counted after that report would be in no report. So
//! the lanes first receive the rules without that URR. If the process is killed in between, its
//! successor publishes what the record says.

use std::net::IpAddr;

use fastlane_pfcp::ie::{self, FSeid, FailedRuleId, FqCsid};
use fastlane_pfcp::{Cause, Group, Ie, IeType, Message, MessageType};

use super::draft::{Draft, PendingPdr};
use super::session_messages::{Response, check, cp_fseid, created, refusal_of, unknown_session};
use super::{Context, Sessions};
use crate::pfcp::RequestKey;
use crate::pfcp::paths::due_marker;
use crate::session::{
    Refusal, Session, SessionIndex, Urr, UrrId, UrrUpdate, UsageReport, UsageReportTrigger, far,
    pdr, qer, urr,
};
use crate::store::StoreError;
use crate::time::{MILLISECOND, Now};
use crate::usage;

/// A session without packets for this time has none in flight in a lane, in nanoseconds.
const QUIET: u64 = 100 * MILLISECOND;

/// URRs that a modification removes, creates or queries.
pub(super) struct UrrChange<'a> {
    /// Session before the request.
    pub(super) before: &'a Session,
    /// Removed URRs, with their state before the removal.
    pub(super) removed: Vec<Urr>,
    /// New URRs.
    pub(super) begun: Vec<UrrId>,
    /// URRs whose usage is queried.
    pub(super) queried: Vec<UrrId>,
}

impl Sessions {
    /// Handles a session modification (tables 7.5.4.1-1 and 7.5.5.1-1) and returns the response.
    pub fn modify(&mut self, message: &Message<'_>, context: &Context<'_>) -> Vec<u8> {
        let message_type = MessageType::SESSION_MODIFICATION_RESPONSE;
        let Some(before) = self.find(message.header.seid.unwrap_or(0)) else {
            return unknown_session(message, message_type);
        };
        let sequence = message.header.sequence;
        let answer = Response { message_type, seid: before.cp_fseid.seid, sequence, node: None };
        let done = self.try_modify(&before, message, context, answer);
        done.unwrap_or_else(|refusal| answer.refused(&refusal))
    }

    fn try_modify(
        &mut self,
        before: &Session,
        message: &Message<'_>,
        context: &Context<'_>,
        answer: Response<'_>,
    ) -> Result<Vec<u8>, Refusal> {
        check(message)?;
        self.check_room(context.now)?;
        let group = message.group();
        let mut session = before.clone();
        session.version = self.store.next_version();
        let is_due = due_marker(&self.published, session.id).is_some();
        let given_up = far::renew_end_markers(&mut session, is_due, context.now.monotonic);
        if let Some(seid) = group.find::<FSeid>()? {
            session.cp_fseid = cp_fseid(&seid, context.local)?;
        }
        if let Some(peer) = context.peer {
            session.peer = peer.index;
        }
        let outcome = self.build(session, Some(before), context, &group)?;
        let query = group.find::<ie::QueryUrrReference>()?.map(|it| it.0);
        // The response goes to the session's current CP F-SEID.
        let answer = Response { seid: outcome.session.cp_fseid.seid, ..answer };
        let bytes = answer.write(Cause::REQUEST_ACCEPTED, |w| {
            created(w, &outcome.created);
            usage::write_usage(w, IeType::USAGE_REPORT_IN_MODIFICATION, &outcome.reports, query);
        });
        self.carry_out(Some(before), &outcome, answer, &bytes, context)?;
        self.markers_given_up += given_up;
        self.reported = outcome.reports;
        Ok(bytes)
    }

    /// Handles a session deletion (tables 7.5.6-1 and 7.5.7.1-1). The response carries the last
    /// usage reports, and before them those that the control plane function has not heard.
    pub fn delete(
        &mut self,
        message: &Message<'_>,
        context: &Context<'_>,
        unheard: &[UsageReport],
    ) -> Vec<u8> {
        let message_type = MessageType::SESSION_DELETION_RESPONSE;
        let Some(session) = self.find(message.header.seid.unwrap_or(0)) else {
            return unknown_session(message, message_type);
        };
        let sequence = message.header.sequence;
        let answer = Response { message_type, seid: session.cp_fseid.seid, sequence, node: None };
        if let Err(refusal) = check(message).and_then(|()| self.check_room(context.now)) {
            return answer.refused(&refusal);
        }
        // Lanes stop first: packets counted after the reports would not be reported.
        self.end_traffic(&session, context.now);
        let (mut urrs, now) = (session.urrs.clone(), context.now);
        let last = |_: &Urr| UsageReportTrigger::TERMR;
        let reports = usage::collect_for_response(&mut urrs, session.version, self, now, last);
        let bytes = answer.write(Cause::REQUEST_ACCEPTED, |w| {
            for reports in [unheard, &reports] {
                usage::write_usage(w, IeType::USAGE_REPORT_IN_DELETION, reports, None);
            }
        });
        match self.commit_tombstone(&session, Some((&context.key, &bytes)), context.now) {
            Ok(()) => {
                self.reported = reports;
                bytes
            }
            Err(error) => answer.refused(&refusal_of(&error)),
        }
    }

    /// Collects the usage reports of a modification: the last ones of URRs that are removed or that
    /// no PDR has any more, and those that the request asks for. Ends counting for the former
    /// before.
    pub(super) fn collect_reports(
        &mut self,
        session: &mut Session,
        change: UrrChange<'_>,
        now: Now,
    ) -> Vec<UsageReport> {
        let UrrChange { before, mut removed, begun, queried } = change;
        let is_of_pdr = |of: &Session, urr: UrrId| of.pdrs.iter().any(|it| it.urrs.contains(&urr));
        let is_left = |it: &&Urr| is_of_pdr(before, it.id) && !is_of_pdr(session, it.id);
        let left = session.urrs.iter().filter(is_left).filter(|it| !begun.contains(&it.id));
        let mut ended: Vec<Urr> = left.cloned().collect();
        ended.extend_from_slice(&removed);
        if !ended.is_empty() {
            self.end_counting(session, &ended, now);
        }
        let mut reports = Vec::new();
        if !ended.is_empty() || !queried.is_empty() {
            let gone: Vec<UrrId> = ended.iter().map(|urr| urr.id).collect();
            let count = session.urrs.len();
            session.urrs.append(&mut removed);
            let mut urrs = std::mem::take(&mut session.urrs);
            reports = usage::collect_for_response(&mut urrs, before.version, self, now, |urr| {
                // A URR that one request removes and creates again is a new one.
                let is_new = begun.contains(&urr.id) && urr.progress.since == now.real;
                if gone.contains(&urr.id) && !is_new {
                    UsageReportTrigger::TERMR
                } else if queried.contains(&urr.id) {
                    UsageReportTrigger::IMMER
                } else {
                    UsageReportTrigger::NONE
                }
            });
            urrs.truncate(count);
            session.urrs = urrs;
        }
        usage::forget_notified(session);
        reports
    }

    /// Removes the sessions of an association, except those whose CP address `is_kept`. Calls
    /// `gone` for each and returns their number.
    pub fn remove_of_peer(
        &mut self,
        now: Now,
        index: u16,
        is_kept: &dyn Fn(IpAddr) -> bool,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        self.remove_if(now, index, &|session| !is_kept(session.cp_fseid.address), gone)
    }

    /// Removes the sessions of an association with an FQ-CSID. Calls `gone` for each and returns
    /// their number.
    pub fn remove_set(
        &mut self,
        now: Now,
        index: u16,
        set: &FqCsid<'_>,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        self.remove_if(now, index, &|session| is_in(session, set), gone)
    }

    fn remove_if(
        &mut self,
        now: Now,
        index: u16,
        is_meant: &dyn Fn(&Session) -> bool,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        let of_peer = self.store.places(0).filter(|(_, it)| it.is_live() && it.peer == index);
        let ids: Vec<SessionIndex> = of_peer.map(|(id, _)| id).collect();
        let mut removed = 0;
        for id in ids {
            let Some(session) = self.get(id).filter(is_meant) else { continue };
            if self.remove(&session, now) {
                removed += 1;
                gone(&session);
            }
        }
        removed
    }

    /// Removes a session without a usage report. Returns false if the removal could not be stored;
    /// the session then still exists.
    pub fn remove(&mut self, session: &Session, now: Now) -> bool {
        self.published.take_down(session);
        let done = self.commit_tombstone(session, None, now);
        if let Err(error) = &done {
            tracing::error!("session {} cannot be removed: {error}", session.id.0);
        }
        done.is_ok()
    }

    /// Withdraws a session from the lanes. If it has traffic, waits until no lane counts for it any
    /// more.
    pub(super) fn end_traffic(&mut self, session: &Session, now: Now) {
        self.published.take_down(session);
        if self.has_traffic(&session.urrs, now) {
            self.lane_wait.wait(&self.published.tables().grace_periods);
        }
    }

    /// Ends counting for URRs that the rules of `session` do not count for, if they have traffic.
    /// Afterwards the lanes use these rules, unless publishing failed.
    pub(super) fn end_counting(&mut self, session: &Session, ended: &[Urr], now: Now) {
        // Removed keys and state slots stay until the session is committed.
        if self.has_traffic(ended, now) && self.published.publish(None, session).is_ok() {
            self.lane_wait.wait(&self.published.tables().grace_periods);
        }
    }

    /// Publishes the stored session again if lanes already received a version that was not stored.
    pub(super) fn fall_back(&mut self, ahead: &Session, kept: &Session) {
        let published = self.published.rules(ahead.id).map(|rules| rules.version());
        if published != Some(ahead.version as u32) {
            return;
        }
        // Their owner frees the state slots.
        let (urrs, qers) = (kept.urrs.clone(), kept.qers.clone());
        let ahead = Session { urrs, qers, ..ahead.clone() };
        if let Err(error) = self.published.publish(Some(&ahead), kept) {
            tracing::error!("session {}: {error}", kept.id.0);
        }
    }

    /// Returns true if one of the URRs counted packets so recently that others may be in flight.
    pub(super) fn has_traffic(&self, urrs: &[Urr], now: Now) -> bool {
        let last = urrs.iter().map(|urr| self.published.last(urr.progress.line)).max();
        last.is_some_and(|last| last.saturating_add(QUIET) >= now.monotonic)
    }

    /// Commits a tombstone for a withdrawn session. If that fails, the session is published again.
    pub(super) fn commit_tombstone(
        &mut self,
        session: &Session,
        answer: Option<(&RequestKey, &[u8])>,
        now: Now,
    ) -> Result<(), StoreError> {
        let version = self.store.next_version();
        let gone = Session { is_deleted: true, version, ..session.clone() };
        let mut done = self.store.commit(&gone, answer, now.monotonic);
        if matches!(done, Err(StoreError::NoPart { .. })) {
            // Without room for the response, the session is still removed.
            done = self.store.commit(&gone, None, now.monotonic);
        }
        if let Err(error) = done {
            if let Err(error) = self.published.publish(None, session) {
                tracing::error!("session {}: {error}", session.id.0);
            }
            return Err(error);
        }
        self.published.release(session);
        self.exchange_addresses(Some(session), None, now);
        self.places.give_back(session.id);
        Ok(())
    }
}

/// Returns true if the session has an FQ-CSID in common with `set`.
#[must_use]
pub fn is_in(session: &Session, set: &FqCsid<'_>) -> bool {
    session.fq_csids.iter().any(|own| meet(own, set))
}

/// Returns true if two FQ-CSIDs are of the same node and share a CSID.
fn meet(own: &[u8], meant: &FqCsid<'_>) -> bool {
    let Ok(own) = FqCsid::decode(own) else { return false };
    (own.node_id_type, own.node) == (meant.node_id_type, meant.node)
        && own.csids().any(|number| meant.csids().any(|it| it == number))
}

impl Draft<'_> {
    /// Applies Remove PDR, FAR, URR, QER and BAR. An unknown rule is refused. URRs and QERs are
    /// removed from the PDRs that refer to them; a removed FAR must have no PDR left (see `check`).
    pub(super) fn remove(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let session = &mut self.session;
        for it in group.groups(IeType::REMOVE_PDR) {
            let id = it.need::<ie::PdrId>()?.0;
            take(&mut session.pdrs, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Pdr(id)))?;
        }
        for it in group.groups(IeType::REMOVE_FAR) {
            let id = it.need::<ie::FarId>()?.0;
            take(&mut session.fars, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Far(id)))?;
        }
        for it in group.groups(IeType::REMOVE_URR) {
            let id = it.need::<ie::UrrId>()?.0;
            let urr = take(&mut session.urrs, |it| it.id == id);
            self.removed.push(urr.ok_or(Refusal::rule(FailedRuleId::Urr(id)))?);
            session.pdrs.iter_mut().for_each(|pdr| pdr.urrs.retain(|urr| *urr != id));
            session.urrs.iter_mut().for_each(|urr| urr.linked.retain(|urr| *urr != id));
        }
        for it in group.groups(IeType::REMOVE_QER) {
            let id = it.need::<ie::QerId>()?.0;
            take(&mut session.qers, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Qer(id)))?;
            session.pdrs.iter_mut().for_each(|pdr| pdr.qers.retain(|qer| *qer != id));
        }
        for it in group.groups(IeType::REMOVE_BAR) {
            let id = it.need::<ie::BarId>()?.0;
            take(&mut session.bars, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Bar(id)))?;
            let fars = session.fars.iter_mut().filter(|far| far.bar == Some(id));
            fars.for_each(|far| far.bar = None);
        }
        Ok(())
    }

    /// Applies Update BAR, FAR, QER, URR and PDR.
    pub(super) fn update(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let session = &mut self.session;
        for it in group.groups(IeType::UPDATE_BAR) {
            let id = it.need::<ie::BarId>()?.0;
            let bar = session.bars.iter_mut().find(|bar| bar.id == id);
            far::apply_bar(bar.ok_or(Refusal::rule(FailedRuleId::Bar(id)))?, &it)?;
        }
        for it in group.groups(IeType::UPDATE_FAR) {
            let id = it.need::<ie::FarId>()?.0;
            let far = session.fars.iter_mut().find(|far| far.id == id);
            let far = far.ok_or(Refusal::rule(FailedRuleId::Far(id)))?;
            let now = far::Moment { version: session.version, at: self.context.now.monotonic };
            far::update(far, &it, self.context.network, now)?;
        }
        for it in group.groups(IeType::UPDATE_QER) {
            let id = it.need::<ie::QerId>()?.0;
            let qer = session.qers.iter_mut().find(|qer| qer.id == id);
            qer::update(qer.ok_or(Refusal::rule(FailedRuleId::Qer(id)))?, &it)?;
        }
        for it in group.groups(IeType::UPDATE_URR) {
            self.update_urr(&it)?;
        }
        self.update_pdrs(group)
    }

    fn update_urr(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let id = group.need::<ie::UrrId>()?.0;
        let index = self.session.urrs.iter().position(|urr| urr.id == id);
        let index = index.ok_or(Refusal::rule(FailedRuleId::Urr(id)))?;
        let meter = (self.context.meter)(&self.session.urrs[index]);
        let mut outcome = Ok(());
        usage::update(&mut self.session.urrs[index], &meter, self.context.now, |urr| {
            urr::apply(urr, group).unwrap_or_else(|refusal| {
                outcome = Err(refusal);
                UrrUpdate::default()
            })
        });
        outcome
    }

    fn update_pdrs(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let mut pending = Vec::new();
        for it in group.groups(IeType::UPDATE_PDR) {
            let id = it.need::<ie::PdrId>()?.0;
            let failed = FailedRuleId::Pdr(id);
            let known = self.session.pdrs.iter_mut().find(|pdr| pdr.id == id);
            let known = known.ok_or(Refusal::rule(failed))?;
            pdr::update(known, &it)?;
            if let Some(pdi) = it.group(IeType::PDI) {
                let mut pdi = pdr::detection(&pdi, self.context.network, failed)?;
                pdi.complete(known);
                (known.source, known.instance) = (pdi.source, pdi.instance);
                pending.push(PendingPdr { pdr: known.clone(), pdi, is_update: true });
            }
        }
        self.allocate(pending)
    }
}

/// Removes and returns the first element that matches.
fn take<T>(list: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    list.iter().position(is_it).map(|index| list.remove(index))
}
