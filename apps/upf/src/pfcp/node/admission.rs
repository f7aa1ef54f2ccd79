//! Sources of requests: who may associate, and who may speak for an association.
//!
//! An association is pinned to the address that set it up, and to the alternative addresses that
//! its peer announced from there. Ports are not part of it. Members of an SMF set may speak for
//! each other's associations ([`smf_set`]).
//!
//! A refused request costs no session. The response to a source without an association is stored
//! apart from those to peers, so a flood evicts none of theirs; other refusals are not stored. An
//! association setup from another address makes the node probe the pinned one; after N1 times T1
//! without an answer the association is down and may be taken over.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use fastlane_pfcp::{Cause, Fault, Message, MessageType};

use super::{Node, NodeContext, RequestPath, heartbeat, node_messages, smf_set};
use crate::config::addresses::is_link_local;
use crate::pfcp::NodeName;
use crate::pfcp::associations::Association;
use crate::pfcp::overload::Limiter;
use crate::pfcp::sessions::Sessions;

/// Rate limit of refusals per second. Further requests are refused without a response.
const REFUSALS: u32 = 1000;
/// Maximum number of log messages about refused sources.
const LOGGED: usize = 256;
/// Maximum number of associations from one source that the configuration does not name: one IPv4
/// address, or one IPv6 /64, of which a host has all addresses. Several SMFs behind one address
/// are a handful (containers of a host, a NAT, an SMF set); 64 such sources together take all
/// slots.
const OF_SOURCE: usize = 16;

/// Reason why the source of a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceFault {
    /// Neither `n4.allow` nor `n4.peers` has the address.
    NotAllowed,
    /// The association or session belongs to a peer with another address.
    Pinned,
    /// No association exists with this address.
    Unassociated,
    /// The address is link-local.
    LinkLocal,
    /// The address has as many associations as one that the configuration does not name may have.
    TooMany,
}

impl SourceFault {
    /// Returns the name used in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Pinned => "pinned",
            Self::Unassociated => "no_association",
            Self::LinkLocal => "link_local",
            Self::TooMany => "too_many",
        }
    }
}

/// Limits of what refusals cost.
#[derive(Debug)]
pub(super) struct Refusals {
    limiter: Limiter,
    /// Sources that were logged.
    logged: BTreeSet<(IpAddr, SourceFault)>,
}

impl Refusals {
    pub(super) const fn new() -> Self {
        Self { limiter: Limiter::new(REFUSALS, REFUSALS), logged: BTreeSet::new() }
    }

    /// Returns true if this refusal is to be logged: once for each source and reason.
    fn is_new(&mut self, source: IpAddr, fault: SourceFault) -> bool {
        self.logged.len() < LOGGED && self.logged.insert((source, fault))
    }
}

/// Checks the source of a request to which no response is stored.
pub(super) fn check(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    message: &Message<'_>,
) -> Admission {
    let (node, from) = (&*cx.node, path.from.ip());
    let message_type = message.header.message_type;
    let found = NodeName::of(message).and_then(|name| node.peers.find(&name));
    let is_foreign = found.is_some_and(|found| !speaks_for(node, from, found));
    match message_type {
        MessageType::ASSOCIATION_SETUP_REQUEST if is_link_local(from) => {
            Admission::Refused(SourceFault::LinkLocal)
        }
        MessageType::ASSOCIATION_SETUP_REQUEST if !node.access.allows(from) => {
            Admission::Refused(SourceFault::NotAllowed)
        }
        MessageType::ASSOCIATION_SETUP_REQUEST => {
            let in_use = found.filter(|found| is_foreign && found.down.is_none());
            let Some(index) = in_use.map(|found| found.peer.index) else {
                let is_there = found.is_some_and(|found| found.peer.address.ip() == from);
                let has_room = is_there || has_room(node, from);
                let full = Admission::Refused(SourceFault::TooMany);
                return if has_room { Admission::Granted } else { full };
            };
            heartbeat::probe(cx, index);
            Admission::Refused(SourceFault::Pinned)
        }
        _ if is_foreign => Admission::Refused(SourceFault::Pinned),
        MessageType::SESSION_MODIFICATION_REQUEST | MessageType::SESSION_DELETION_REQUEST => {
            session(node, from, message.header.seid.unwrap_or(0))
        }
        _ if node.peers.known_at(from).next().is_none() => Admission::Stranger,
        _ => Admission::Granted,
    }
}

/// Result of [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The request is carried out.
    Granted,
    /// The source has no association.
    Stranger,
    /// The request is refused.
    Refused(SourceFault),
}

/// Returns true if a source may have another association.
fn has_room(node: &Node, from: IpAddr) -> bool {
    if node.access.names(from) {
        return true;
    }
    let source = |address: IpAddr| match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    };
    let of_source = node.peers.iter().filter(|it| source(it.peer.address.ip()) == source(from));
    of_source.count() < OF_SOURCE
}

/// Checks the source of a request to an established session. A session that a peer may not change
/// does not exist for it.
fn session(node: &Node, from: IpAddr, seid: u64) -> Admission {
    let peer = node.sessions.peer_of(seid);
    let association = peer.and_then(|index| node.peers.get(index));
    if association.is_some_and(|found| speaks_for(node, from, found)) {
        return Admission::Granted;
    }
    let of_session = node.sessions.find(seid).map(|session| session.cp_fseid.address);
    if of_session == Some(from) {
        return Admission::Granted;
    }
    match node.peers.known_at(from).next() {
        None => Admission::Stranger,
        Some(_) if of_session.is_some() => Admission::Refused(SourceFault::Pinned),
        Some(_) => Admission::Granted,
    }
}

/// Returns true if a message from this address may act for an association.
pub(super) fn speaks_for(node: &Node, from: IpAddr, association: &Association) -> bool {
    let is_member = |other: &Association| smf_set::is_same(node, association, other);
    association.has_address(from) || node.peers.known_at(from).any(is_member)
}

/// Refuses a request because of its source. Returns the response, or `None` above the rate limit.
pub(super) fn refuse(
    cx: &mut NodeContext<'_>,
    path: RequestPath,
    message: &Message<'_>,
    fault: SourceFault,
) -> Option<Vec<u8>> {
    let message_type = message.header.message_type;
    let refused = &mut cx.node.statistics.sources_refused;
    *refused.entry((message_type.0, fault)).or_default() += 1;
    if cx.node.refusals.is_new(path.from.ip(), fault) {
        log(cx.node, path.from.ip(), message, fault);
    }
    cx.node.refusals.limiter.admit(cx.now).then(|| refusal(cx.node, message, fault))
}

fn refusal(node: &Node, message: &Message<'_>, fault: SourceFault) -> Vec<u8> {
    let header = message.header;
    let is_new = header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
    let cause = match header.message_type {
        _ if fault == SourceFault::TooMany => Cause::NO_RESOURCES_AVAILABLE,
        MessageType::ASSOCIATION_SETUP_REQUEST => Cause::REQUEST_REJECTED,
        _ => Cause::NO_ESTABLISHED_PFCP_ASSOCIATION,
    };
    if !header.message_type.is_session() {
        return node_messages::refuse(header, &node.identity, Fault { cause, offending: None });
    }
    // Another SMF that guesses a SEID is told that the session does not exist.
    match fault {
        SourceFault::Pinned if !is_new => Sessions::unknown(message),
        _ => node_messages::refuse_session(message, &node.identity, cause),
    }
}

/// Logs a refused source: the first request of its kind only.
fn log(node: &Node, from: IpAddr, message: &Message<'_>, fault: SourceFault) {
    let what = message.header.message_type;
    match fault {
        SourceFault::NotAllowed => tracing::warn!(
            "N4: {what} from {from} is refused: the address is not allowed; add it to app.n4.allow \
             if it is an SMF"
        ),
        SourceFault::Unassociated => tracing::warn!(
            "N4: {what} from {from} is refused: there is no association with this address"
        ),
        SourceFault::LinkLocal => tracing::warn!(
            "N4: {what} from {from} is refused: the address is link-local; give the SMF a global \
             or unique local address"
        ),
        SourceFault::TooMany => tracing::warn!(
            "N4: {what} from {from} is refused: this address, or its IPv6 /64, has {OF_SOURCE} \
             associations; add it to app.n4.allow if more SMFs than that are there"
        ),
        SourceFault::Pinned => {
            let found = NodeName::of(message).and_then(|name| node.peers.find(&name));
            let owner = found.map_or_else(
                || "its session is of another SMF".to_owned(),
                |found| {
                    let peer = &found.peer;
                    format!("the association of {} is with {}", peer.node_id, peer.address.ip())
                },
            );
            tracing::warn!(
                "N4: {what} from {from} is refused: {owner}; an SMF that has moved is accepted \
                 once its old address is silent for N1 times T1"
            );
        }
    }
}
