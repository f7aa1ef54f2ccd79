//! PFCP sessions: establishment, modification, deletion and recovery.
//!
//! A request is applied to a copy of the session. The copy is committed together with the response
//! only when all of it is valid, and is then published to the lanes. A refused request leaves
//! nothing behind. The committed record is authoritative: if the process is killed between commit
//! and publication, its successor publishes the session.
//!
//! Per session the heap holds only its index among those in use (4 bytes) and one bit for its UE
//! address.

mod draft;
mod lane_wait;
mod modification;
mod session_messages;
mod session_table;
mod session_tally;
mod teid_conflicts;

use std::cell::Cell;
use std::net::IpAddr;

use fastlane::table::EntryId;
use fastlane_pfcp::ie::{self, FSeid, FailedRuleId};
use fastlane_pfcp::{Cause, Fault, Group, Ie, IeType, Message, MessageType};

use self::draft::{CompletedDraft, Created, Draft, DraftContext};
use self::lane_wait::LaneWait;
use self::modification::UrrChange;
use self::session_messages::{
    Response, check, cp_fseid, created, refusal_of, refused_by, seid_of, supi, up_seid,
};
use self::session_tally::{SessionOwner, SessionTally};
use self::teid_conflicts::TeidConflicts;
use super::{NodeName, Peer, RequestKey};
use crate::alloc::{Addresses, Family, SessionIndices, first_generation};
use crate::config::Settings;
use crate::rules::compile::keys;
use crate::rules::layout::{TeidLayout, UeKey};
use crate::rules::publish::Published;
use crate::session::{Pdr, Reporting, Session, SessionIndex, Source, Urr, UrrId, UsageReport};
use crate::store::Store;
use crate::time::{Now, SECOND};
use crate::usage::Meter;

pub use self::modification::is_in;
pub(super) use self::session_messages::{name_of, network};
pub use self::session_table::SessionsError;
pub use crate::session::{Network, Refusal};

/// Quarantine of a session index and of a UE address beyond the time in which a request can be
/// retransmitted. It is longer than packets stay in flight.
const GRACE: u64 = 2 * SECOND;

/// Maximum number of FQ-CSIDs of a session: one for each kind of node (table 7.5.2-1).
const SETS: usize = 8;

/// Context of a session request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Current time.
    pub now: Now,
    /// Key of the request.
    pub key: RequestKey,
    /// Our address that it was sent to, used in our F-SEIDs.
    pub local: IpAddr,
    /// Association of the Node ID in the request, if there is one. It may be down: the request
    /// shows that the silent peer is alive.
    pub peer: Option<&'a Peer>,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    pub answer_life: u64,
}

/// All PFCP sessions of this node.
pub struct Sessions {
    settings: Settings,
    node_id: NodeName,
    network: Network,
    shape: TeidLayout,
    store: Store,
    places: SessionIndices,
    addresses: Addresses,
    published: Published,
    tally: SessionTally,
    lane_wait: LaneWait,
    /// Usage reports in the response to the last request.
    reported: Vec<UsageReport>,
    /// Number of end markers that were given up by requests.
    markers_given_up: u64,
    /// Conflicts about TEIDs that were logged.
    conflicts: TeidConflicts,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    life: u64,
}

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
        let mut session = new_session(&group, peer.index, context)?;
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
        let (store, published, shape) = (&self.store, &self.published, self.shape);
        let owner = |teid| owner_of(store, published, shape, teid);
        let (conflict, asks) = (Cell::new(None), session.cp_fseid.address);
        let version = before.map_or(0, |before| before.version);
        let meter = |urr: &Urr| meter_of(published, version, urr);
        let draft_context = DraftContext {
            network: &self.network,
            settings: &self.settings,
            shape,
            addresses: &mut self.addresses,
            owner: &owner,
            conflict: &conflict,
            meter: &meter,
            now: context.now,
        };
        let mut draft = Draft::of(session, draft_context);
        if let Err(refusal) = fill(&mut draft, before.is_some(), group) {
            draft.give_up();
            if let Some(conflict) = conflict.get() {
                self.conflicts.log(&self.store, conflict, asks);
            }
            return Err(refusal);
        }
        let ready = draft.ready();
        let taken = ready.taken.clone();
        self.complete(ready, before, context.now, group)
            .inspect_err(|_| taken.iter().for_each(|key| self.addresses.give_back(key)))
    }

    /// Completes a draft with what needs the tables: assigns state slots, checks that no other
    /// session has its keys, and collects usage reports.
    fn complete(
        &mut self,
        ready: CompletedDraft,
        before: Option<&Session>,
        now: Now,
        group: &Group<'_>,
    ) -> Result<Outcome, Refusal> {
        let CompletedDraft { mut session, created, removed, begun, taken } = ready;
        // The simple form depends on the slots, so they are assigned before the check.
        self.published
            .assign(before, &mut session)
            .map_err(|_| Refusal::because(Cause::NO_RESOURCES_AVAILABLE))?;
        let checked = self.published.check(&session).map_err(|error| refused_by(&error, &session));
        let queried = checked
            .and_then(|()| queried_urrs(group, &session, &begun))
            .inspect_err(|_| self.published.unassign(before, &session))?;
        for urr in session.urrs.iter_mut().filter(|urr| begun.contains(&urr.id)) {
            let line = urr.progress.line;
            urr.begin(self.published.counters(line), self.published.last(line), now);
        }
        let reports = match before {
            Some(before) => {
                let change = UrrChange { before, removed, begun, queried };
                self.collect_reports(&mut session, change, now)
            }
            None => Vec::new(),
        };
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

    /// Returns the stored response to a request if it may still be retransmitted. A response sent
    /// before the session's association began (`begun`) does not count.
    #[must_use]
    pub fn answer(
        &self,
        now: Now,
        key: &RequestKey,
        begun: &dyn Fn(u16) -> u64,
    ) -> Option<Vec<u8>> {
        let since = now.monotonic.saturating_sub(self.life);
        self.store.answer(key, since, begun)
    }

    /// Returns the response to a request for a session that does not exist or belongs to another
    /// control plane.
    #[must_use]
    pub fn unknown(message: &Message<'_>) -> Vec<u8> {
        let answer = MessageType(message.header.message_type.0.wrapping_add(1));
        session_messages::unknown_session(message, answer)
    }

    /// Takes the usage reports in the response to the last request, if it was accepted.
    pub fn take_reported(&mut self) -> Vec<UsageReport> {
        std::mem::take(&mut self.reported)
    }

    /// Takes the number of end markers that requests gave up since the last call.
    pub const fn take_markers_given_up(&mut self) -> u64 {
        std::mem::replace(&mut self.markers_given_up, 0)
    }

    /// Returns the session with an index.
    #[must_use]
    pub fn get(&self, id: SessionIndex) -> Option<Session> {
        self.store.get(id)
    }

    /// Returns the session with one of our SEIDs.
    #[must_use]
    pub fn find(&self, seid: u64) -> Option<Session> {
        let id = SessionIndex(seid as u32);
        let record = self.store.record(id)?;
        if record.seid == seid && record.is_live() { self.store.get(id) } else { None }
    }

    /// Claims the UE addresses after a change and puts those before it, if no longer used, into
    /// quarantine. Counts the session for its slice and association.
    fn exchange_addresses(&mut self, before: Option<&Session>, after: Option<&Session>, now: Now) {
        let had = before.map(|session| self.users_of(session)).unwrap_or_default();
        let has = after.map(|session| self.users_of(session)).unwrap_or_default();
        has.iter().for_each(|key| self.addresses.claim(key));
        let gone = had.iter().filter(|key| !has.contains(key));
        gone.for_each(|key| self.addresses.put_to_rest(key, now.monotonic));
        self.count_owners(before, after);
    }

    /// Counts a session by its slice and association before and after a change.
    fn count_owners(&mut self, before: Option<&Session>, after: Option<&Session>) {
        let published = &self.published;
        let [before, after] =
            [before, after].map(|it| it.map(|session| owner_in(published, session)));
        self.tally.exchange(before, after);
    }

    fn users_of(&self, session: &Session) -> Vec<UeKey> {
        let users = keys(session, self.published.context()).users;
        users_of(session, users, &self.network, &self.addresses)
    }
}

/// Returns what a session counts for.
fn owner_in(published: &Published, session: &Session) -> SessionOwner {
    let (group, slice, peer) =
        (published.slices().group_of(session), session.s_nssai, session.peer);
    SessionOwner { group, slice, peer }
}

/// Returns the UE addresses of a session: the lookup keys `users`, and pool addresses that no key
/// contains yet.
fn users_of(
    session: &Session,
    mut users: Vec<UeKey>,
    network: &Network,
    addresses: &Addresses,
) -> Vec<UeKey> {
    let is_from_there = |pdr: &&Pdr| matches!(pdr.source, Source::Core | Source::SgiLan);
    let of_others = session.pdrs.iter().filter(is_from_there).find_map(|pdr| pdr.instance);
    for pdr in &session.pdrs {
        let Some(user) = pdr.user.filter(|user| user.is_ours) else { continue };
        let pool = |family| addresses.pool_of(network, pdr.instance, of_others, family);
        if let Some(v4) = user.v4 {
            users.extend(pool(Family::V4).map(|it| UeKey::v4(it, v4)));
        }
        if let Some((v6, 64)) = user.v6 {
            users.extend(pool(Family::V6).map(|it| UeKey::v6(it, v6)));
        }
    }
    users
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
fn queried_urrs(
    group: &Group<'_>,
    session: &Session,
    begun: &[UrrId],
) -> Result<Vec<UrrId>, Refusal> {
    let flags = group.find::<ie::PfcpsmreqFlags>()?.unwrap_or_default();
    let known = session.urrs.iter().map(|urr| urr.id).filter(|id| !begun.contains(id));
    let known: Vec<UrrId> = known.collect();
    if flags.has(ie::PfcpsmreqFlags::QAURR) {
        return Ok(known);
    }
    let mut queried = Vec::new();
    for it in group.groups(IeType::QUERY_URR) {
        let id = it.need::<ie::UrrId>()?.0;
        if !session.urrs.iter().any(|urr| urr.id == id) {
            return Err(Refusal::rule(FailedRuleId::Urr(id)));
        }
        queried.extend(known.contains(&id).then_some(id));
    }
    Ok(queried)
}

/// Returns a session without rules, from an establishment request.
fn new_session(group: &Group<'_>, peer: u16, context: &Context<'_>) -> Result<Session, Refusal> {
    let sets = group.all::<ie::FqCsid<'_>>().take(SETS).map(|set| {
        let mut octets = Vec::new();
        set?.encode(&mut octets);
        Ok(octets)
    });
    Ok(Session {
        id: SessionIndex(0),
        seid: 0,
        cp_fseid: cp_fseid(&group.need::<FSeid>()?, context.local)?,
        peer,
        version: 0,
        generation: 0,
        discarded: 0,
        is_deleted: false,
        established: context.now.real,
        pdn_type: group.find::<ie::PdnType>()?.map_or(0, |it| it.0),
        supi: supi(group)?,
        network: network(group)?,
        s_nssai: group.find::<ie::SNssai>()?,
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

/// Returns the session that owns a TEID, by its number or by the exact table.
fn owner_of(
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

#[cfg(test)]
mod tests;
