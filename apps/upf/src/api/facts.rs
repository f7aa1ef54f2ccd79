//! What the slow half must tell, and how that becomes an answer.

use super::metrics::Numbers;
use super::query::{Answer, Question, Who};
use super::view::{AssociationView, Judged, Page, SessionRow, SessionView, Trace};
use crate::datapath::decide::Subject;
use crate::pfcp::peer::peers::Association;
use crate::session::{InstanceId, Session, SessionId};

/// The most sessions of a page, and of a trace.
pub(super) const MOST: usize = 1000;
/// The most sessions of one subscriber that are traced.
const MOST_TRACED: usize = 16;

/// What the slow half knows. Nothing here changes anything.
pub trait Facts {
    /// Its associations.
    fn associations(&self) -> Vec<&Association>;
    /// How many sessions the association in a place has.
    fn sessions_of(&self, peer: u16) -> usize;
    /// How many sessions there are.
    fn sessions(&self) -> usize;
    /// At most so many sessions beyond a place, in the order of their places.
    fn after(&self, place: Option<SessionId>, limit: usize) -> Vec<Session>;
    /// The session of this SEID of ours.
    fn session(&self, seid: u64) -> Option<Session>;
    /// The sessions of somebody, at most so many.
    fn find(&self, who: &Who, limit: usize) -> Vec<Session>;
    /// What lanes have counted in a line: octets up, packets up, octets down, packets down.
    fn counted(&self, line: u32) -> [u64; 4];
    /// The name of a network instance.
    fn instance(&self, instance: InstanceId) -> Option<&str>;
    /// The network instance that packets from users arrive in, or those to them, where a PDR names
    /// none.
    fn arrival(&self, is_uplink: bool) -> Option<InstanceId>;
    /// What decides where packets leave by N6, or by a tunnel, in a network instance if one is
    /// named.
    fn leading(&self, instance: Option<InstanceId>, is_n6: bool) -> Leading;
    /// What the rules that are published say of a packet of a session. Nothing is charged.
    fn judge(&self, session: &Session, subject: &Subject) -> Option<Judged>;
    /// All that is counted.
    fn numbers(&self) -> Numbers;
}

/// What decides where packets leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leading {
    /// Linux's routing table of this number; without one, main.
    Table(Option<u32>),
    /// All go to this Ethernet address, by this port.
    Fixed(String, String),
}

/// The answer to a question.
pub fn answer(question: &Question, facts: &dyn Facts) -> Answer {
    match question {
        Question::Associations => {
            let all = facts.associations().into_iter().take(MOST);
            Answer::Associations(all.map(|it| AssociationView::of(it, facts)).collect())
        }
        Question::Sessions { after, limit } => {
            let limit = (*limit).clamp(1, MOST);
            let found = facts.after(*after, limit);
            // A full page may have another behind it.
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
