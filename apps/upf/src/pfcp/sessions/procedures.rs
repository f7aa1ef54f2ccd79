//! PFCP session procedures (TS 29.244 clause 6.3): establishment, modification and deletion.

use fastlane::table::EntryId;
use fastlane_pfcp::ie::{self, FSeid, FailedRuleId};
use fastlane_pfcp::{Cause, Fault, Group, Ie, IeType, Message, MessageType};

use super::draft::{CompletedDraft, Created, Draft, DraftContext};
use super::session_messages::{
    Response, check, cp_fseid, created, network, refusal_of, refused_by, seid_of, supi,
    unknown_session, up_seid,
};
use super::{Change, GRACE, Sessions};
use crate::alloc::{Addresses, first_generation};
use crate::pfcp::Context;
use crate::rules::layout::key::TeidLayout;
use crate::rules::layout::key::UeKey;
use crate::rules::publish::Published;
use crate::session::{
    Pdr, Refusal, Reporting, Session, SessionIndex, Urr, UrrId, UsageReport, UsageReportTrigger,
};
use crate::store::Store;
use crate::time::Now;
use crate::usage::{self, Meter};

/// Result of a valid request, not yet committed.
struct Outcome {
    session: Session,
    created: Vec<Created>,
    reports: Vec<UsageReport>,
    /// UE addresses taken from pools for this request.
    taken: Vec<UeKey>,
}

impl Sessions {
    /// Handles a session establishment (tables 7.5.2-1 and 7.5.3.1-1). Returns the response, which
    /// is committed if the request is accepted.
    pub fn establish(&mut self, message: &Message<'_>, context: &Context<'_>) -> Vec<u8> {
        let node_id = self.node_id.clone();
        let answer = Response {
            message_type: MessageType::SESSION_ESTABLISHMENT_RESPONSE,
            seid: seid_of(&message.group()),
            sequence: message.header.sequence,
            node: Some(&node_id),
        };
        self.try_establish(message, context, answer).unwrap_or_else(|it| answer.refused(&it))
    }

    fn try_establish(
        &mut self,
        message: &Message<'_>,
        context: &Context<'_>,
        answer: Response<'_>,
    ) -> Result<Vec<u8>, Refusal> {
        check(message)?;
        self.check_room(context.now)?;
        let peer = context.peer.ok_or(Refusal::because(Cause::NO_ESTABLISHED_PFCP_ASSOCIATION))?;
        let group = message.group();
        let mut session = new_session(&group, peer.index, context.now)?;
        let rested = context.now.monotonic.saturating_sub(self.life.saturating_add(GRACE));
        let id = self.places.take(&self.store, rested.max(1));
        let id = id.ok_or(Refusal::because(Cause::NO_RESOURCES_AVAILABLE))?;
        session.id = id;
        session.version = self.store.next_version();
        let version = session.version;
        session.generation = match self.store.record(id) {
            Some(record) => record.generation,
            None => first_generation(id),
        };
        // The generation is never 0 and never repeats for this index.
        session.generation = session.generation.max(1);
        session.seid = u64::from(session.generation) << 32 | u64::from(id.0);
        let begun = session.generation;
        let outcome = self.build(session, None, context, &group).and_then(|mut outcome| {
            if outcome.session.generation == begun {
                outcome.session.generation = begun.wrapping_add(1);
            }
            let seid = up_seid(outcome.session.seid, context.local);
            let bytes = answer.write(Cause::REQUEST_ACCEPTED, |w| {
                w.put(&seid);
                created(w, &outcome.created);
            });
            self.carry_out(None, &outcome, answer, &bytes, context)?;
            Ok(bytes)
        });
        if outcome.is_err() {
            match self.store.record(id) {
                // The commit could not be undone: the session exists.
                Some(record) if record.version >= version && record.is_live() => {}
                Some(record) if record.version >= version => self.places.give_back(id),
                _ => self.places.untake(id),
            }
        }
        outcome
    }

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
        if let Some(seid) = group.find::<FSeid>()? {
            session.cp_fseid = cp_fseid(&seid)?;
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
        Ok(bytes)
    }

    /// Handles a session deletion (tables 7.5.6-1 and 7.5.7.1-1). The response carries the last
    /// usage reports.
    pub fn delete(&mut self, message: &Message<'_>, context: &Context<'_>) -> Vec<u8> {
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
            usage::write_usage(w, IeType::USAGE_REPORT_IN_DELETION, &reports, None);
        });
        match self.commit_tombstone(&session, Some((&context.key, &bytes)), context.now) {
            Ok(()) => {
                self.change = Some(Change { before: Some(session), after: None });
                bytes
            }
            Err(error) => answer.refused(&refusal_of(&error)),
        }
    }

    /// Checks that there is room for another response. A response that may still be retransmitted
    /// is never evicted, so a control plane that sends faster is told of congestion. The room
    /// exceeds what this thread can produce.
    fn check_room(&mut self, now: Now) -> Result<(), Refusal> {
        let has_room = self.store.make_room(now.monotonic.saturating_sub(self.life).max(1));
        let congestion = Refusal::because(Cause::PFCP_ENTITY_IN_CONGESTION);
        if has_room { Ok(()) } else { Err(congestion) }
    }

    /// Builds the session that the request describes, with all its resources. A refused request
    /// returns its allocations.
    fn build(
        &mut self,
        session: Session,
        before: Option<&Session>,
        context: &Context<'_>,
        group: &Group<'_>,
    ) -> Result<Outcome, Refusal> {
        let flags = group.find::<ie::PfcpsereqFlags>()?.unwrap_or_default();
        let (store, published, shape) = (&self.store, &self.published, self.shape);
        let owner = |teid| owner_of(store, published, shape, teid);
        let version = before.map_or(0, |before| before.version);
        let meter = |urr: &Urr| meter_of(published, version, urr);
        let draft_context = DraftContext {
            network: &self.network,
            settings: &self.settings,
            shape,
            addresses: &mut self.addresses,
            owner: &owner,
            meter: &meter,
            restores: flags.has(ie::PfcpsereqFlags::RESTI),
            now: context.now,
        };
        let mut draft = Draft::of(session, draft_context);
        if let Err(refusal) = fill(&mut draft, before.is_some(), group) {
            draft.give_up();
            return Err(refusal);
        }
        let ready = draft.ready();
        let taken = ready.taken.clone();
        self.complete(ready, before, context.now, group)
            .inspect_err(|_| taken.iter().for_each(|key| self.addresses.give_back(key)))
    }

    /// Completes a draft with what needs the tables: checks that no other session has its keys,
    /// assigns state slots and collects usage reports.
    fn complete(
        &mut self,
        ready: CompletedDraft,
        before: Option<&Session>,
        now: Now,
        group: &Group<'_>,
    ) -> Result<Outcome, Refusal> {
        let CompletedDraft { mut session, created, mut removed, begun, taken } = ready;
        self.published.check(&session).map_err(|error| refused_by(&error, &session))?;
        let is_asked = asked(group, &session, &begun)?;
        self.published
            .assign(before, &mut session)
            .map_err(|_| Refusal::because(Cause::NO_RESOURCES_AVAILABLE))?;
        for urr in session.urrs.iter_mut().filter(|urr| begun.contains(&urr.id)) {
            let meter = meter_of(&self.published, 0, urr);
            usage::begin(urr, &meter, now);
        }
        if !removed.is_empty() {
            self.end_counting(&session, &removed, now);
        }
        let mut reports = Vec::new();
        if let Some(before) = before.filter(|_| !removed.is_empty() || !is_asked.is_empty()) {
            let gone: Vec<UrrId> = removed.iter().map(|urr| urr.id).collect();
            let count = session.urrs.len();
            session.urrs.append(&mut removed);
            let mut urrs = std::mem::take(&mut session.urrs);
            reports = usage::collect_for_response(&mut urrs, before.version, self, now, |urr| {
                // A URR that one request removes and creates again is a new one.
                let is_new = begun.contains(&urr.id) && urr.progress.since == now.real;
                if gone.contains(&urr.id) && !is_new {
                    UsageReportTrigger::TERMR
                } else if is_asked.contains(&urr.id) {
                    UsageReportTrigger::IMMER
                } else {
                    UsageReportTrigger::NONE
                }
            });
            urrs.truncate(count);
            session.urrs = urrs;
        }
        usage::forget_notified(&mut session);
        Ok(Outcome { session, created, reports, taken })
    }

    /// Commits and publishes a session. If publishing fails, the session before the request is
    /// restored.
    fn carry_out(
        &mut self,
        before: Option<&Session>,
        outcome: &Outcome,
        answer: Response<'_>,
        bytes: &[u8],
        context: &Context<'_>,
    ) -> Result<(), Refusal> {
        let (session, now) = (&outcome.session, context.now);
        let give_back = |addresses: &mut Addresses| {
            outcome.taken.iter().for_each(|key| addresses.give_back(key));
        };
        if let Err(error) = self.store.commit(session, Some((&context.key, bytes)), now.monotonic) {
            give_back(&mut self.addresses);
            self.published.unassign(before, session);
            if let Some(before) = before {
                self.fall_back(session, before);
            }
            return Err(refusal_of(&error));
        }
        let Err(error) = self.published.publish(before, session) else {
            self.exchange_addresses(before, Some(session), now);
            let (before, after) = (before.cloned(), Some(session.clone()));
            self.change = Some(Change { before, after });
            return Ok(());
        };
        let refusal = refused_by(&error, session);
        let version = self.store.next_version();
        let undone = match before {
            Some(before) => Session { generation: session.generation, version, ..before.clone() },
            None => Session { is_deleted: true, version, ..session.clone() },
        };
        let refused = answer.refused(&refusal);
        let undone_at = self.store.commit(&undone, Some((&context.key, &refused)), now.monotonic);
        match undone_at {
            Ok(()) => {
                give_back(&mut self.addresses);
                self.published.unassign(before, session);
                if before.is_some() {
                    self.fall_back(session, &undone);
                }
            }
            Err(error) => tracing::error!("session {}: {error}", session.id.0),
        }
        Err(refusal)
    }
}

/// Applies the IEs of a request to a draft.
fn fill(draft: &mut Draft<'_>, is_change: bool, group: &Group<'_>) -> Result<(), Refusal> {
    draft.common(group)?;
    if is_change {
        draft.remove(group)?;
    }
    draft.create(group)?;
    if is_change {
        draft.update(group)?;
    }
    let mut removed = Vec::new();
    for it in group.groups(IeType::REMOVE_FAR) {
        removed.push(it.need::<ie::FarId>()?.0);
    }
    draft.check(&removed)
}

/// Returns the URRs whose usage is queried, by number or all (QAURR), except those created by this
/// request.
fn asked(group: &Group<'_>, session: &Session, begun: &[UrrId]) -> Result<Vec<UrrId>, Refusal> {
    let flags = group.find::<ie::PfcpsmreqFlags>()?.unwrap_or_default();
    let known = session.urrs.iter().map(|urr| urr.id).filter(|id| !begun.contains(id));
    let known: Vec<UrrId> = known.collect();
    if flags.has(ie::PfcpsmreqFlags::QAURR) {
        return Ok(known);
    }
    let mut asked = Vec::new();
    for it in group.groups(IeType::QUERY_URR) {
        let id = it.need::<ie::UrrId>()?.0;
        if !session.urrs.iter().any(|urr| urr.id == id) {
            return Err(Refusal::rule(FailedRuleId::Urr(id)));
        }
        asked.extend(known.contains(&id).then_some(id));
    }
    Ok(asked)
}

/// Returns a session without rules, from an establishment request.
fn new_session(group: &Group<'_>, peer: u16, now: Now) -> Result<Session, Refusal> {
    let sets = group.all::<ie::FqCsid<'_>>().take(SETS).map(|set| {
        let mut octets = Vec::new();
        set?.encode(&mut octets);
        Ok(octets)
    });
    Ok(Session {
        id: SessionIndex(0),
        seid: 0,
        cp_fseid: cp_fseid(&group.need::<FSeid>()?)?,
        peer,
        version: 0,
        generation: 0,
        discarded: 0,
        is_deleted: false,
        established: now.real,
        pdn_type: group.find::<ie::PdnType>()?.map_or(0, |it| it.0),
        supi: supi(group)?,
        network: network(group)?,
        inactivity_s: None,
        fq_csids: sets.collect::<Result<_, Fault>>()?,
        pdrs: Vec::new(),
        fars: Vec::new(),
        qers: Vec::new(),
        urrs: Vec::new(),
        bars: Vec::new(),
        reporting: Reporting::default(),
    })
}

/// Maximum number of FQ-CSIDs of a session: one for each kind of node (table 7.5.2-1).
const SETS: usize = 8;

/// Returns the session that owns a TEID, by its number or by the exact table.
pub(super) fn owner_of(
    store: &Store,
    published: &Published,
    shape: TeidLayout,
    teid: u32,
) -> Option<SessionIndex> {
    let by_number = || {
        let id = shape.session(teid);
        let session = store.get(id)?;
        let has = |pdr: &Pdr| pdr.tunnel.is_some_and(|tunnel| tunnel.teid == teid);
        session.pdrs.iter().any(has).then_some(id)
    };
    published.tunnel(teid).or_else(by_number)
}

/// Returns what a URR has counted under the rules of `version`.
fn meter_of(published: &Published, version: u64, urr: &Urr) -> Meter {
    Meter::of(published.tables().state.read(EntryId(urr.progress.line)), version)
}
