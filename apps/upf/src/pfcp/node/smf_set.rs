//! SMF sets (TS 29.244 clause 5.22).
//!
//! With one association per SMF set (SSET) its peer announces further addresses
//! ([`peer_search`](super::peer_search)). With one association per SMF (MPAS) those with the same
//! SMF Set ID are members of a set, if `n4.allow` or `n4.peers` names the addresses of SMFs: an SMF
//! Set ID alone proves nothing. The sessions of a silent member stay as long as another one
//! answers, which gets its reports ([`report_receivers`](super::report_receivers)).

use super::{Node, NodeContext};
use crate::pfcp::associations::Association;

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

/// Returns the time since which no member of the SMF set of a silent association responds, or
/// `None` if one does.
pub(super) fn silent_since(node: &Node, association: &Association) -> Option<u64> {
    let own = association.down?;
    if survivors(node, association).next().is_some() {
        return None;
    }
    let others = node.peers.troubled().filter(|other| is_same(node, association, other));
    Some(others.filter_map(|other| other.down).fold(own, u64::max))
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
