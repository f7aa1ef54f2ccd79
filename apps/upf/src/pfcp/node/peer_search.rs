//! Alternative addresses of a peer (TS 29.244 clause 5.22). A peer that is silent is sought there
//! before its association counts as down, and the association goes on where it answers.

use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::ie::RecoveryTimeStamp;
use fastlane_pfcp::{Header, Message, MessageType};

use super::{NodeContext, RequestPath, node_messages};
use crate::pfcp::{Request, Tag};

/// Sends a heartbeat request to an address. Returns false if too many requests wait for a response.
pub(super) fn send_heartbeat(
    cx: &mut NodeContext<'_>,
    to: SocketAddr,
    local: Option<IpAddr>,
    tag: Tag,
) -> bool {
    let sequence = cx.node.requests.sequence();
    let header = Header::node(MessageType::HEARTBEAT_REQUEST, sequence);
    let recovery = RecoveryTimeStamp(cx.node.identity.recovery);
    let bytes = node_messages::message(header, |to| to.put(&recovery));
    cx.send(Request { bytes, sequence, to, local, tag })
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
        sent += u16::from(send_heartbeat(cx, to, None, tag));
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
