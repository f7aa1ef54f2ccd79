//! Node view: what the control plane shows to the API, and how replies are made from it.

use super::metrics::Numbers;
use super::query::{Answer, Question, Who};
use super::view::{AssociationView, Judged, Page, SessionRow, SessionView, Trace};
use crate::datapath::decide::Subject;
use crate::pfcp::peer::peers::Association;
use crate::session::{InstanceId, Session, SessionId};

/// Maximum number of sessions of a page.
pub(super) const MOST: usize = 1000;
/// Maximum number of sessions in a trace.
const MOST_TRACED: usize = 16;

/// Read-only view of the control plane.
pub trait Facts {
    /// Returns the associations.
    fn associations(&self) -> Vec<&Association>;
    /// Returns the number of sessions of the association with this index.
    fn sessions_of(&self, peer: u16) -> usize;
    /// Returns the number of sessions.
    fn sessions(&self) -> usize;
    /// Returns up to `limit` sessions behind a cursor, by session index.
    fn after(&self, place: Option<SessionId>, limit: usize) -> Vec<Session>;
    /// Returns the session with this UP SEID.
    fn session(&self, seid: u64) -> Option<Session>;
    /// Returns up to `limit` sessions of a subscriber, address or tunnel.
    fn find(&self, who: &Who, limit: usize) -> Vec<Session>;
    /// Returns the counters of a slot: uplink octets, uplink packets, downlink octets, downlink
    /// packets.
    fn counted(&self, line: u32) -> [u64; 4];
    /// Returns the name of a network instance.
    fn instance(&self, instance: InstanceId) -> Option<&str>;
    /// Returns the network instance in which uplink or downlink packets arrive if a PDR names none.
    fn arrival(&self, is_uplink: bool) -> Option<InstanceId>;
    /// Returns what routes packets that leave by N6, or through a tunnel, in a network instance if
    /// one is named.
    fn leading(&self, instance: Option<InstanceId>, is_n6: bool) -> Leading;
    /// Returns the decision of the published rules about a packet of a session. Nothing is charged.
    fn judge(&self, session: &Session, subject: &Subject) -> Option<Judged>;
    /// Returns all counters.
    fn numbers(&self) -> Numbers;
}

/// Source of egress routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leading {
    /// Linux routing table by number; `None`: main.
    Table(Option<u32>),
    /// Configured next hop: Ethernet address and port.
    Fixed(String, String),
}

/// Answers a query.
pub fn answer(question: &Question, facts: &dyn Facts) -> Answer {
    match question {
        Question::Associations => {
            let all = facts.associations().into_iter().take(MOST);
            Answer::Associations(all.map(|it| AssociationView::of(it, facts)).collect())
        }
        Question::Sessions { after, limit } => {
            let limit = (*limit).clamp(1, MOST);
            let found = facts.after(*after, limit);
            // A full page may be followed by another one.
            let next = found.last().filter(|_| found.len() == limit).map(|it| it.id.0);
            let sessions = found.iter().map(|it| SessionRow::of(it, facts)).collect();
            Answer::Sessions(Page { sessions, next, total: facts.sessions() })
        }
        Question::Session(seid) => {
            let found = facts.session(*seid);
            Answer::Session(found.map(|it| Box::new(SessionView::of(&it, facts))))
        }
        Question::Trace(who, sample) => {
            let found = facts.find(who, MOST_TRACED);
            Answer::Trace(Box::new(Trace::of(who, sample.as_ref(), &found, facts)))
        }
        Question::Numbers => Answer::Numbers(Box::new(facts.numbers())),
    }
}
