//! SMF sets and alternative addresses (TS 29.244 clause 5.22).
//!
//! With one association per SMF set (SSET) its peer announces further addresses. A silent peer is
//! sought there before its association counts as down. With one association per SMF (MPAS) those
//! with the same SMF Set ID are members of a set, if `n4.allow` or `n4.peers` names the addresses of
//! SMFs: an SMF Set ID alone proves nothing. The sessions of a silent member stay as long as another
//! one answers.
//!
//! A session report that the SMF of the CP F-SEID does not answer N1 times goes to the next one that
//! can control the session, and later reports go there at once (a detour). Its response may hand the
//! session over. A detour ends when the SMF is heard again, or after a time for an address that gets
//! no heartbeats.

use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::ie::{AlternativeSmfIpAddress, RecoveryTimeStamp};
use fastlane_pfcp::{Cause, Message};

use super::{Node, NodeContext, RequestPath, admission, dispatch, heartbeat, session_followers};
use crate::pfcp::associations::Association;
use crate::pfcp::{NodeName, Request, Tag};
use crate::session::{Session, SessionIndex};
use crate::time::SECOND;
use crate::usage;

/// Life of a detour around an address that gets no heartbeats.
const DETOUR: u64 = 60 * SECOND;

/// Returns true if two associations are of members of one SMF set.
pub(super) fn is_same(node: &Node, one: &Association, other: &Association) -> bool {
    !one.smf_set.is_empty() && one.smf_set == other.smf_set && !node.access.is_open()
}

/// Returns the other members of an association's SMF set that respond.
pub(super) fn survivors<'n>(
    node: &'n Node,
    association: &'n Association,
) -> impl Iterator<Item = &'n Association> {
    let own = association.peer.index;
    // Most associations are of no set, and this costs them nothing.
    let all = (!association.smf_set.is_empty()).then(|| node.peers.iter());
    all.into_iter().flatten().filter(move |other| {
        other.peer.index != own && other.peer.is_up && is_same(node, association, other)
    })
}

/// Returns the time since which no member of the SMF set of a silent association responds, or `None`
/// if one does.
pub(super) fn silent_since(node: &Node, association: &Association) -> Option<u64> {
    let own = association.down?;
    if survivors(node, association).next().is_some() {
        return None;
    }
    let others = node.peers.troubled().filter(|other| is_same(node, association, other));
    Some(others.filter_map(|other| other.down).fold(own, u64::max))
}

/// Sends heartbeats to the alternative addresses of a silent peer. Returns false if it has none.
pub(super) fn search(cx: &mut NodeContext<'_>, index: u16) -> bool {
    let Some(found) = cx.node.peers.get(index) else { return false };
    let pinned = found.peer.address;
    let others = found.alternatives.iter().filter(|address| **address != pinned.ip());
    let others: Vec<IpAddr> = others.copied().collect();
    let mut sent = 0;
    for address in others {
        let to = SocketAddr::new(address, pinned.port());
        let tag = Tag::Alternative(index);
        sent += u16::from(heartbeat::send(cx, to, None, tag));
    }
    cx.node.heartbeats.begin_search(index, sent)
}

/// Handles a heartbeat response from an alternative address: the association goes on there. Its
/// recovery time stamp may be that of another SMF, which has lost nothing.
pub(super) fn found(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    index: u16,
    message: &Message<'_>,
) {
    if !cx.node.heartbeats.is_searching(index) {
        return;
    }
    cx.node.requests.cancel_search(index);
    cx.node.heartbeats.answered(cx.now, index);
    let Some(association) = cx.node.peers.get(index).filter(|it| !it.is_ending) else { return };
    let (before, is_up) = (association.peer.address.ip(), association.peer.is_up);
    let stamp = message.group().need::<RecoveryTimeStamp>();
    let recovery = stamp.map_or(association.peer.recovery, |it| it.0);
    tracing::warn!(
        "{} does not answer at {before}, but at {}",
        association.peer.node_id,
        path.from.ip()
    );
    let moved = cx.node.peers.move_to(index, path.from, path.local, recovery);
    if cx.node.check(moved).is_none() {
        return;
    }
    if !is_up {
        cx.node.statistics.associations_up += 1;
        cx.node.drain.retry(index);
    }
    cx.node.usage.detours().begin(index, before, path.from.ip(), u64::MAX);
}

/// Handles a heartbeat to an alternative address without response.
pub(super) fn not_found(cx: &mut NodeContext<'_>, index: u16) {
    if cx.node.heartbeats.is_search_over(index) {
        heartbeat::lost(cx, index);
    }
}

/// Sends the reports for an association that is down to another member of its set.
pub(super) fn stand_in(cx: &mut NodeContext<'_>, index: u16) {
    let Some(lost) = cx.node.peers.get(index) else { return };
    let Some(member) = survivors(cx.node, lost).next() else { return };
    let (silent, to) = (lost.peer.address.ip(), member.peer.address.ip());
    tracing::warn!(
        "{} does not answer: {} of its SMF set gets the reports of its sessions",
        lost.peer.node_id,
        member.peer.node_id
    );
    cx.node.usage.detours().begin(index, silent, to, u64::MAX);
}

/// Sends a session report that was not answered, or whose receiver does not control the session, to
/// the next address that may. Returns false if there is none.
pub(super) fn redirect(cx: &mut NodeContext<'_>, id: SessionIndex, request: &Request) -> bool {
    let Some(session) = cx.node.sessions.get(id) else { return false };
    let all = controllers(cx.node, &session);
    let tried = all.iter().position(|address| *address == request.to.ip());
    let next = tried.and_then(|tried| all.get(tried + 1)).copied();
    let (peer, owner) = (session.peer, session.cp_fseid.address);
    let Some(to) = next else {
        cx.node.usage.detours().end_one(peer, owner);
        return false;
    };
    if !resend(cx, &session, request, to) {
        return false;
    }
    let association = cx.node.peers.get(peer);
    let is_followed = association.is_some_and(|it| it.down.is_some() && it.has_address(owner));
    let until = if is_followed { u64::MAX } else { cx.now.monotonic.saturating_add(DETOUR) };
    cx.node.usage.detours().begin(peer, owner, to, until);
    true
}

/// Sends a request again, to another address.
fn resend(cx: &mut NodeContext<'_>, session: &Session, request: &Request, to: IpAddr) -> bool {
    let bytes = usage::redirect(&request.bytes, session.cp_fseid);
    let to = SocketAddr::new(to, request.to.port());
    let is_sent = cx.send(Request { bytes, to, local: None, ..request.clone() });
    if is_sent {
        cx.node.usage.count_redirected();
    }
    is_sent
}

/// Returns the addresses that reports of a session may go to, in the order in which they are tried:
/// that of the CP F-SEID, those of its association, and those of other members of its SMF set.
fn controllers(node: &Node, session: &Session) -> Vec<IpAddr> {
    let mut all = vec![session.cp_fseid.address];
    let mut add = |address: IpAddr| {
        if !all.contains(&address) {
            all.push(address);
        }
    };
    if let Some(own) = node.peers.get(session.peer) {
        if own.peer.is_up {
            add(own.peer.address.ip());
        }
        own.alternatives.iter().copied().for_each(&mut add);
        survivors(node, own).for_each(|member| add(member.peer.address.ip()));
    }
    all
}

/// Handles the response to a session report, which may ask for another receiver or hand the session
/// over.
pub(super) fn reported(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    request: &Request,
    message: &Message<'_>,
) {
    let Tag::Report(id) = request.tag else { return };
    let session = cx.node.sessions.get(id);
    let cause = message.group().find::<Cause>().ok().flatten();
    match (session, cause) {
        // Only the SMF of the CP F-SEID redirects: two others could go on for ever.
        (Some(session), Some(Cause::REDIRECTION_REQUESTED))
            if session.cp_fseid.address == path.from.ip() =>
        {
            if let Some(to) = wanted(cx.node, message).filter(|to| *to != path.from.ip())
                && resend(cx, &session, request, to)
            {
                return;
            }
        }
        // It is not the one that established the session: what it knows says nothing about that.
        (Some(session), Some(Cause::SESSION_CONTEXT_NOT_FOUND))
            if session.cp_fseid.address != path.from.ip() =>
        {
            if !redirect(cx, id, request) {
                dispatch::report_given_up(cx, id, request.sequence);
            }
            return;
        }
        _ => {}
    }
    session_followers::reported(cx, id, message, new_owner(cx.node, path, message));
}

/// Returns the address that a response asks to redirect to, if it may be one of an SMF.
fn wanted(node: &Node, message: &Message<'_>) -> Option<IpAddr> {
    let found = message.group().find::<AlternativeSmfIpAddress>().ok().flatten()?;
    let v6 = found.v6.map(|v6| IpAddr::V6(v6).to_canonical());
    let mut both = found.v4.map(IpAddr::V4).into_iter().chain(v6);
    both.find(|address| node.access.allows(*address) && node.reaches(*address))
}

/// Returns the association of the Node ID in a response, if its sender may speak for it (table
/// 7.5.9.1-1: a new SMF of the set takes the session over).
fn new_owner(node: &Node, path: RequestPath, message: &Message<'_>) -> Option<u16> {
    let named = NodeName::of(message).and_then(|name| node.peers.find(&name))?;
    let speaks = admission::speaks_for(node, path.from.ip(), named) && !named.is_ending;
    speaks.then_some(named.peer.index)
}
