//! Receivers of session reports (TS 29.244 clause 5.22).
//!
//! A report that the SMF of the CP F-SEID does not answer N1 times goes to the next one that can
//! control the session: another address of its association, or another member of its SMF set.
//! Later reports go there at once (a detour). A response may hand the session over. A detour ends
//! when the SMF is heard again, or after a time for an address that gets no heartbeats.

use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::ie::AlternativeSmfIpAddress;
use fastlane_pfcp::{Cause, Message};

use super::{Node, NodeContext, RequestPath, admission, session_followers, smf_set};
use crate::pfcp::{NodeName, Request, Tag};
use crate::session::{Session, SessionIndex};
use crate::time::SECOND;
use crate::usage;

/// Life of a detour around an address that gets no heartbeats.
const DETOUR: u64 = 60 * SECOND;

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
        smf_set::survivors(node, own).for_each(|member| add(member.peer.address.ip()));
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
                cx.usage(|usage, on| usage.given_up(on, id, request.sequence));
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
