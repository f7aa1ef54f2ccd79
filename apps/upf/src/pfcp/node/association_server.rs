//! Association procedures that control planes start (TS 29.244 clauses 6.2.6 to 6.2.8), and session
//! set deletion.
//!
//! # Bulk removal
//! The sessions of an association or an FQ-CSID are removed in slices: heartbeats and other
//! associations are served in between.
//!
//! The requester gets its response after the last session. Other requests of the association are
//! discarded meanwhile and retransmitted after T1. Only a repeated release gets its response
//! earlier, because nothing can come in between. If the process is killed, its successor continues
//! when the request is retransmitted, or at once for an association that is marked as ending.

use std::net::{IpAddr, Ipv4Addr};

use fastlane_pfcp::ie::{
    AlternativeSmfIpAddress, CpFunctionFeatures, CpPfcpEntityIpAddress, FqCsid, NodeId,
    PfcpasrspFlags, RecoveryTimeStamp, SmfSetId,
};
use fastlane_pfcp::{Cause, Fault, Group, Header, Ie, IeType, Message, Writer};

use super::{Node, NodeContext, RequestPath, node_messages, session_followers};
use crate::pfcp::associations::{
    ALTERNATIVES, AssociationError, AssociationResponse, AssociationUpdate, Setup,
};
use crate::pfcp::sessions::is_in;
use crate::pfcp::{NodeName, RequestKey};
use crate::session::Session;
use crate::time::Now;

/// Handles an association setup (table 7.4.4.1-1). It replaces an existing association. Its
/// sessions are removed, except those that the request retains (clause 6.2.6.2.2).
pub(super) fn set_up(
    cx: &mut NodeContext<'_>,
    asked: PendingRequest,
    message: &Message<'_>,
) -> Result<Option<Vec<u8>>, Fault> {
    let (group, path) = (message.group(), asked.path);
    let node_id = NodeName::from(group.need::<NodeId<'_>>()?);
    let RecoveryTimeStamp(recovery) = group.need()?;
    let features = group.find::<CpFunctionFeatures>()?.unwrap_or_default().0;
    let address = (path.from.ip(), cx.node.settings.n4.port).into();
    let (alternatives, smf_set) = (alternatives(cx.node, &group)?, smf_set(&group)?);
    let setup = Setup {
        node_id,
        recovery,
        address,
        local: Some(path.local),
        features,
        alternatives: alternatives.unwrap_or_default(),
        smf_set: smf_set.unwrap_or_default(),
    };
    let index = index(cx.node, cx.now, &setup.node_id)?;
    let retained = retained(message)?;
    let is_there = cx.node.peers.get(index).is_some();
    let are_kept = is_there && retained.is_some();
    let which = retained.map_or(RemovalScope::All, RemovalScope::Unless);
    let (then, from) = (RemovalStep::Begin(setup, are_kept), if is_there { 0 } else { u32::MAX });
    let removal = Removal { index, which, then, asked: Some(asked), from };
    begin_removal(cx, removal)
}

/// Returns the Alternative SMF IP Addresses of a message that may associate and can be reached, if
/// it has any; preferred ones (PPE) first.
pub(super) fn alternatives(node: &Node, group: &Group<'_>) -> Result<Option<Vec<IpAddr>>, Fault> {
    if !group.has(IeType::ALTERNATIVE_SMF_IP_ADDRESS) {
        return Ok(None);
    }
    let (mut preferred, mut others) = (Vec::new(), Vec::new());
    for ie in group.all::<AlternativeSmfIpAddress>().take(ALTERNATIVES) {
        let AlternativeSmfIpAddress { v4, v6, is_preferred } = ie?;
        let v6 = v6.map(|v6| IpAddr::V6(v6).to_canonical());
        let both = v4.map(IpAddr::V4).into_iter().chain(v6);
        let both = both.filter(|address| node.access.allows(*address) && node.reaches(*address));
        if is_preferred { preferred.extend(both) } else { others.extend(both) }
    }
    preferred.append(&mut others);
    Ok(Some(preferred))
}

/// Returns the SMF Set ID of a message in lower case, if it has one.
pub(super) fn smf_set(group: &Group<'_>) -> Result<Option<Vec<u8>>, Fault> {
    Ok(group.find::<SmfSetId<'_>>()?.map(|SmfSetId(name)| name.to_ascii_lowercase()))
}

pub(super) fn index(node: &Node, now: Now, node_id: &NodeName) -> Result<u16, Fault> {
    let index = node.peers.index(node_id, now, node.life);
    index.map_err(|_| Fault { cause: Cause::NO_RESOURCES_AVAILABLE, offending: None })
}

pub(super) fn accept_setup(node: &Node, request: Header, are_kept: bool) -> Vec<u8> {
    node_messages::answer(request, &node.identity, Cause::REQUEST_ACCEPTED, |to| {
        introduce(node, to);
        if are_kept {
            to.put(&PfcpasrspFlags::PSREI);
        }
    })
}

/// Appends recovery time stamp, features and resources of this node.
pub(super) fn introduce(node: &Node, to: &mut Writer<'_>) {
    to.put(&RecoveryTimeStamp(node.identity.recovery));
    to.put(&node.identity.features);
    node.identity.put_resources(to);
}

/// Creates or replaces an association.
pub(super) fn begin(
    cx: &mut NodeContext<'_>,
    index: u16,
    setup: &Setup,
    given: Option<AssociationResponse<'_>>,
) -> Result<(), Fault> {
    let is_new = cx.node.peers.get(index).is_none();
    cx.node
        .peers
        .set_up(index, setup, cx.now, given)
        .map_err(|error| system_failure(cx, &error))?;
    cancel(cx, index);
    cx.node.heartbeats.begin(cx.now, index);
    cx.node.statistics.associations_up += 1;
    if is_new {
        tracing::info!("association with {} ({}) set up", setup.node_id, setup.address);
    }
    Ok(())
}

/// Handles an association update (table 7.4.4.3-1). It may change the CP function features, the
/// alternative addresses and the SMF Set ID.
/// Release preparation (PARPS) needs the feature EPFAR, which is not announced, and is ignored.
pub(super) fn update(
    cx: &mut NodeContext<'_>,
    key: RequestKey,
    message: &Message<'_>,
) -> Result<Vec<u8>, Fault> {
    let group = message.group();
    let index = known(cx.node, &NodeName::from(group.need::<NodeId<'_>>()?))?;
    let update = AssociationUpdate {
        features: group.find::<CpFunctionFeatures>()?.map(|it| it.0),
        alternatives: alternatives(cx.node, &group)?,
        smf_set: smf_set(&group)?,
    };
    let (header, identity) = (message.header, &cx.node.identity);
    let bytes = node_messages::answer(header, identity, Cause::REQUEST_ACCEPTED, |to| {
        to.put(&identity.features);
    });
    let given = AssociationResponse { key, bytes: &bytes };
    let changed = cx.node.peers.update(index, cx.now, &update, given);
    changed.map_err(|error| system_failure(cx, &error))?;
    Ok(bytes)
}

/// Handles an association release (table 7.4.4.5-1): all its sessions are removed.
pub(super) fn release(
    cx: &mut NodeContext<'_>,
    asked: PendingRequest,
    message: &Message<'_>,
) -> Result<Option<Vec<u8>>, Fault> {
    let node_id = NodeName::from(message.group().need::<NodeId<'_>>()?);
    let from = asked.path.from.ip();
    let index = match node_id {
        // Some control planes do not know their own address; that of the datagram says who it is.
        NodeName::V4(Ipv4Addr::UNSPECIFIED) => only_at(cx.node, from)?,
        node_id => known(cx.node, &node_id)?,
    };
    if !cx.node.is_removing(index) {
        return end(cx, index, Some(asked));
    }
    // The association already ends for another reason.
    let bytes = accept(cx.node, asked);
    let kept = cx.node.peers.update(
        index,
        cx.now,
        &AssociationUpdate::default(),
        AssociationResponse { key: asked.key, bytes: &bytes },
    );
    kept.map_err(|error| system_failure(cx, &error))?;
    Ok(Some(bytes))
}

/// Ends an association after its sessions. If the process is killed in between, its successor
/// continues.
pub(super) fn end(
    cx: &mut NodeContext<'_>,
    index: u16,
    asked: Option<PendingRequest>,
) -> Result<Option<Vec<u8>>, Fault> {
    let bytes = asked.map(|asked| (asked.key, accept(cx.node, asked)));
    let given = bytes.as_ref().map(|(key, bytes)| AssociationResponse { key: *key, bytes });
    cx.node.peers.begin_end(index, cx.now, given).map_err(|error| system_failure(cx, &error))?;
    let removal =
        Removal { index, which: RemovalScope::All, then: RemovalStep::End, asked, from: 0 };
    begin_removal(cx, removal)
}

/// Releases an association whose sessions have been removed.
pub(super) fn ended(
    cx: &mut NodeContext<'_>,
    index: u16,
    is_asked: bool,
) -> Result<(), AssociationError> {
    if let Some(found) = cx.node.peers.get(index) {
        tracing::info!("association with {} has ended", found.peer.node_id);
        cx.node.initiations.ended(cx.now, found.peer.address.ip());
    }
    cancel(cx, index);
    cx.node.peers.release(index)?;
    cx.node.statistics.associations_released += u64::from(is_asked);
    Ok(())
}

/// Encodes a response that accepts the request.
pub(super) fn accept(node: &Node, asked: PendingRequest) -> Vec<u8> {
    node_messages::answer(asked.header, &node.identity, Cause::REQUEST_ACCEPTED, |_| {})
}

/// Cancels heartbeats and pending requests of an association.
fn cancel(cx: &mut NodeContext<'_>, index: u16) {
    cx.node.requests.cancel_of_peer(index);
    cx.node.drain.forget(index);
    cx.node.heartbeats.end(index);
}

/// Handles a session set deletion (table 7.4.6.1-1): removes all sessions of the association
/// with one of the FQ-CSIDs.
pub(super) fn remove_set(
    cx: &mut NodeContext<'_>,
    asked: PendingRequest,
    message: &Message<'_>,
) -> Result<Option<Vec<u8>>, Fault> {
    let group = message.group();
    let index = known(cx.node, &NodeName::from(group.need::<NodeId<'_>>()?))?;
    // All FQ-CSIDs are validated before a session is removed.
    let all = group.all::<FqCsid<'_>>().take(SETS).map(|set| {
        let mut octets = Vec::new();
        set?.encode(&mut octets);
        Ok(octets)
    });
    let which = RemovalScope::Of(all.collect::<Result<_, Fault>>()?);
    let removal = Removal { index, which, then: RemovalStep::Answer, asked: Some(asked), from: 0 };
    begin_removal(cx, removal)
}

/// Returns the association index of a Node ID.
fn known(node: &Node, node_id: &NodeName) -> Result<u16, Fault> {
    node.peers.find(node_id).map(|found| found.peer.index).ok_or(node_messages::NO_ASSOCIATION)
}

/// Returns the association index of a peer address with one association.
fn only_at(node: &Node, address: IpAddr) -> Result<u16, Fault> {
    let mut found = node.peers.at(address);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.peer.index),
        _ => Err(node_messages::NO_ASSOCIATION),
    }
}

pub(super) fn system_failure(cx: &mut NodeContext<'_>, error: &AssociationError) -> Fault {
    cx.node.statistics.table_failed += 1;
    tracing::error!("{error}");
    Fault { cause: Cause::SYSTEM_FAILURE, offending: None }
}

/// Starts a removal. Returns the response if all sessions are removed at once, else it is sent
/// later.
pub(super) fn begin_removal(
    cx: &mut NodeContext<'_>,
    mut removal: Removal,
) -> Result<Option<Vec<u8>>, Fault> {
    if !remove_slice(cx, &mut removal) {
        cx.node.removals.push_back(removal);
        return Ok(None);
    }
    removed(cx, &removal)
}

/// Continues the pending removals, one association after the other.
pub(super) fn go_on_removing(cx: &mut NodeContext<'_>) {
    let Some(mut removal) = cx.node.removals.pop_front() else { return };
    if !remove_slice(cx, &mut removal) {
        return cx.node.removals.push_back(removal);
    }
    let ended = removed(cx, &removal);
    let Some(PendingRequest { key, header, path }) = removal.asked else { return };
    let bytes = match ended {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return,
        Err(fault) => node_messages::refuse(header, &cx.node.identity, fault),
    };
    cx.node.answers.keep(cx.now, key, bytes.clone());
    cx.node.count_answer_of(&bytes);
    cx.out.send(Some(path.local), path.from, bytes);
}

/// Runs the step after a removal and returns the response to the request.
fn removed(cx: &mut NodeContext<'_>, removal: &Removal) -> Result<Option<Vec<u8>>, Fault> {
    let (index, asked) = (removal.index, removal.asked);
    let bytes = asked.map(|asked| match &removal.then {
        RemovalStep::Begin(_, are_kept) => accept_setup(cx.node, asked.header, *are_kept),
        _ => accept(cx.node, asked),
    });
    let given = asked.zip(bytes.as_ref());
    let given = given.map(|(asked, bytes)| AssociationResponse { key: asked.key, bytes });
    match &removal.then {
        RemovalStep::Begin(setup, _) => {
            begin(cx, index, setup, given)?;
            cx.node.initiations.begun(setup.address.ip());
        }
        RemovalStep::End => {
            let ended = ended(cx, index, asked.is_some());
            ended.map_err(|error| system_failure(cx, &error))?;
        }
        RemovalStep::Restored(recovery) => {
            let changed = cx.node.peers.set_recovery(index, cx.now, *recovery);
            cx.node.check(changed);
            if let Some(found) = cx.node.peers.get(index) {
                cx.node.initiations.restarted(cx.now, found.peer.address.ip());
            }
            cx.node.drain.forget(index);
            cx.node.statistics.restorations += 1;
        }
        RemovalStep::Answer => {
            let none = AssociationUpdate::default();
            let kept = given.map(|given| cx.node.peers.update(index, cx.now, &none, given));
            kept.transpose().map_err(|error| system_failure(cx, &error))?;
        }
    }
    Ok(bytes)
}

/// Maximum number of FQ-CSIDs in a request: one for each kind of node (table 7.4.6.1-1 has five).
const SETS: usize = 16;
/// Maximum number of CP addresses with retained sessions.
const ADDRESSES: usize = 64;

/// Returns the sessions to retain when an association is set up again (table 7.4.4.1-2), if any.
fn retained(message: &Message<'_>) -> Result<Option<Retained>, Fault> {
    let ie_type = IeType::PFCP_SESSION_RETENTION_INFORMATION;
    let Some(group) = message.group().group(ie_type) else { return Ok(None) };
    let all = group.all::<CpPfcpEntityIpAddress>().take(ADDRESSES);
    Ok(Some(Retained { of: all.collect::<Result<_, Fault>>()? }))
}

/// Sessions removed in one slice: about a millisecond.
const SLICE: u32 = 128;
/// Session indices examined in one slice.
const LOOKED_AT: u32 = 8192;

/// Bulk removal of an association's sessions, and the step that follows.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) index: u16,
    pub(super) which: RemovalScope,
    pub(super) then: RemovalStep,
    /// Request to which a response is sent at the end.
    pub(super) asked: Option<PendingRequest>,
    /// Session index at which the search continues.
    pub(super) from: u32,
}

/// Request whose response is sent later.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) key: RequestKey,
    pub(super) header: Header,
    pub(super) path: RequestPath,
}

/// Selection of sessions of an association.
#[derive(Debug)]
pub(super) enum RemovalScope {
    All,
    /// All sessions except the retained ones.
    Unless(Retained),
    /// Sessions with one of these FQ-CSIDs.
    Of(Vec<Vec<u8>>),
}

/// Step after a bulk removal.
#[derive(Debug)]
pub(super) enum RemovalStep {
    /// Set up the association again. The flag says whether sessions were retained.
    Begin(Setup, bool),
    /// Release the association.
    End,
    /// Store the recovery time stamp of a peer that restarted.
    Restored(u32),
    /// Send the response only.
    Answer,
}

/// Sessions to retain when an association is set up again (TS 29.244 table 7.4.4.1-2).
#[derive(Debug)]
pub(super) struct Retained {
    /// CP addresses of the retained sessions; empty retains all.
    pub(super) of: Vec<CpPfcpEntityIpAddress>,
}

impl Retained {
    fn has(&self, address: IpAddr) -> bool {
        let is = |it: &CpPfcpEntityIpAddress| match address {
            IpAddr::V4(address) => it.v4 == Some(address),
            IpAddr::V6(address) => it.v6 == Some(address),
        };
        self.of.is_empty() || self.of.iter().any(is)
    }
}

impl RemovalScope {
    fn has(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Unless(retained) => !retained.has(session.cp_fseid.address),
            Self::Of(sets) => {
                let mut sets = sets.iter().filter_map(|set| FqCsid::decode(set).ok());
                sets.any(|set| is_in(session, &set))
            }
        }
    }
}

/// Removes a slice of sessions. Returns true if none is left.
pub(super) fn remove_slice(cx: &mut NodeContext<'_>, removal: &mut Removal) -> bool {
    let end = removal.from.saturating_add(LOOKED_AT);
    for _ in 0..SLICE {
        let (id, next) = cx.node.sessions.next_of_peer(removal.from, end, removal.index);
        removal.from = next;
        let Some(id) = id else { return next >= cx.node.sessions.capacity() };
        let meant = cx.node.sessions.get(id).filter(|session| removal.which.has(session));
        if let Some(session) = meant {
            session_followers::remove(cx, session);
        }
    }
    removal.from >= cx.node.sessions.capacity()
}
