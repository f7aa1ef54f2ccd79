//! Node view: what the control plane shows to the API, and how replies are made from it.

use super::metrics::Snapshot;
use super::query::{Query, Reply, TraceSubject};
use super::view::{AssociationView, DryRun, Page, SessionRow, SessionView, Trace};
use crate::datapath::classify::PacketFields;
use crate::pfcp::associations::Association;
use crate::session::{InstanceId, Session, SessionIndex};

/// Maximum number of sessions of a page.
pub(super) const MAX_PAGE: usize = 1000;
/// Maximum number of sessions in a trace.
const MAX_TRACED: usize = 16;

/// Read-only view of the control plane.
pub trait NodeView {
    /// Returns the associations.
    fn associations(&self) -> Vec<&Association>;
    /// Returns the number of sessions of the association with this index.
    fn sessions_of(&self, peer: u16) -> usize;
    /// Returns the number of sessions.
    fn sessions(&self) -> usize;
    /// Returns up to `limit` sessions behind a cursor, by session index.
    fn after(&self, place: Option<SessionIndex>, limit: usize) -> Vec<Session>;
    /// Returns the session with this UP SEID.
    fn session(&self, seid: u64) -> Option<Session>;
    /// Returns up to `limit` sessions of a subscriber, address or tunnel.
    fn find(&self, who: &TraceSubject, limit: usize) -> Vec<Session>;
    /// Returns the counters of a slot: uplink octets, uplink packets, downlink octets, downlink
    /// packets.
    fn counted(&self, line: u32) -> [u64; 4];
    /// Returns the name of a network instance.
    fn instance(&self, instance: InstanceId) -> Option<&str>;
    /// Returns the network instance in which uplink or downlink packets arrive if a PDR names none.
    fn arrival(&self, is_uplink: bool) -> Option<InstanceId>;
    /// Returns what routes packets that leave by N6, or through a tunnel, in a network instance if
    /// one is named.
    fn route_source(&self, instance: Option<InstanceId>, is_n6: bool) -> RouteSource;
    /// Returns the decision of the published rules about a packet of a session. Nothing is charged.
    fn dry_run(&self, session: &Session, fields: &PacketFields) -> Option<DryRun>;
    /// Returns all counters.
    fn numbers(&self) -> Snapshot;
}

/// Source of egress routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// Linux routing table by number; `None`: main.
    Table(Option<u32>),
    /// Configured next hop: Ethernet address and port.
    Fixed(String, String),
}

/// Answers a query.
pub fn answer(query: &Query, node: &dyn NodeView) -> Reply {
    match query {
        Query::Associations => {
            let all = node.associations().into_iter().take(MAX_PAGE);
            Reply::Associations(all.map(|it| AssociationView::of(it, node)).collect())
        }
        Query::Sessions { after, limit } => {
            let limit = (*limit).clamp(1, MAX_PAGE);
            let found = node.after(*after, limit);
            // A full page may be followed by another one.
            let next = found.last().filter(|_| found.len() == limit).map(|it| it.id.0);
            let sessions = found.iter().map(|it| SessionRow::of(it, node)).collect();
            Reply::Sessions(Page { sessions, next, total: node.sessions() })
        }
        Query::Session(seid) => {
            let found = node.session(*seid);
            Reply::Session(found.map(|it| Box::new(SessionView::of(&it, node))))
        }
        Query::Trace(who, sample) => {
            let found = node.find(who, MAX_TRACED);
            Reply::Trace(Box::new(Trace::of(who, sample.as_ref(), &found, node)))
        }
        Query::Snapshot => Reply::Snapshot(Box::new(node.numbers())),
    }
}
