//! Requests of ours: sent again each T1, N1 times in all (TS 29.244 clause 6.4).

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::pfcp::Outbox;
use crate::session::SessionId;
use crate::time::Now;

/// The most requests about sessions that wait for an answer at a time. Nobody has more of them than
/// are left: one peer that does not answer has half, and what another sends does not wait for it.
pub const WINDOW: usize = 4096;
/// The most requests of all kinds: there is room for those about the node when a peer that answers
/// nothing has taken the rest.
const ALL: usize = WINDOW + 2048;
/// Sequence numbers have 24 bits (clause 7.2.2.2).
pub const SEQUENCES: u32 = 1 << 24;

/// Who is told of an answer, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// A heartbeat to the association in this place.
    Heartbeat(u16),
    /// An association setup with a configured control plane function, by its place there.
    Setup(usize),
    /// An association update or release to the association in this place.
    Association(u16),
    /// A node report to the association in this place.
    NodeReport(u16),
    /// A session report: `Usage` is told.
    Report(SessionId),
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The whole message.
    pub bytes: Vec<u8>,
    /// Its sequence number: from [`Requests::sequence`], or that of a request before a restart,
    /// which is thus repeated.
    pub sequence: u32,
    /// Where it goes. The answer comes from there.
    pub to: SocketAddr,
    /// The address of ours that it leaves from; none leaves that to whoever sends it.
    pub local: Option<IpAddr>,
    /// Who is told of the answer.
    pub tag: Tag,
}

/// What waits for answers.
#[derive(Debug)]
pub struct Requests {
    t1: u64,
    n1: u32,
    next: u32,
    waiting: HashMap<u32, Waiting>,
    /// Those about sessions, by where they went.
    reports: HashMap<SocketAddr, usize>,
    /// When each is looked at again, soonest first, for T1 is the same for all.
    deadlines: VecDeque<(u64, u32)>,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    sent: u32,
    /// When it is sent again or given up; what is in `deadlines` for another moment is old.
    deadline: u64,
}

/// There are too many requests already, or one with this sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl Requests {
    /// None yet. T1 in nanoseconds; the first sequence number must not be one that was used in the
    /// last N1 times T1.
    #[must_use]
    pub fn new(t1: u64, n1: u32, first: u32) -> Self {
        let (waiting, reports, deadlines) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Self { t1: t1.max(1), n1: n1.max(1), next: first % SEQUENCES, waiting, reports, deadlines }
    }

    /// The sequence number for a new request.
    pub fn sequence(&mut self) -> u32 {
        loop {
            let sequence = self.next;
            self.next = (self.next + 1) % SEQUENCES;
            if !self.waiting.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    /// The number that [`sequence`](Self::sequence) says next, if nothing waits with it.
    #[must_use]
    pub const fn next_sequence(&self) -> u32 {
        self.next
    }

    /// How many requests about sessions may be sent now.
    #[must_use]
    pub fn room(&self) -> usize {
        WINDOW.saturating_sub(self.waiting.len())
    }

    /// How many of them may be sent to one peer now.
    #[must_use]
    pub fn room_for(&self, to: SocketAddr) -> usize {
        self.room().saturating_sub(self.reports.get(&to).copied().unwrap_or(0))
    }

    /// How many wait for an answer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a request until it is answered.
    ///
    /// # Errors
    /// When too many wait, or one with this number; nothing is sent then, and it is to be tried
    /// again later.
    pub fn send(&mut self, now: Now, request: Request, out: &mut Outbox) -> Result<(), Busy> {
        let is_report = matches!(request.tag, Tag::Report(_));
        let has_room = match is_report {
            true => self.room_for(request.to) > 0,
            false => self.waiting.len() < ALL,
        };
        if !has_room || self.waiting.contains_key(&request.sequence) {
            return Err(Busy);
        }
        if is_report {
            *self.reports.entry(request.to).or_default() += 1;
        }
        out.send(request.local, request.to, request.bytes.clone());
        let deadline = now.monotonic.saturating_add(self.t1);
        self.deadlines.push_back((deadline, request.sequence));
        self.waiting.insert(request.sequence, Waiting { request, sent: 1, deadline });
        Ok(())
    }

    /// Takes an answer: whom to tell of it. None when nobody has asked for it.
    pub fn answered(&mut self, from: SocketAddr, sequence: u32, answer_type: u8) -> Option<Tag> {
        let waiting = self.waiting.get(&sequence)?;
        let asked = waiting.request.bytes.get(1).copied()?;
        if waiting.request.to != from || !answers(asked, answer_type) {
            return None;
        }
        Some(self.remove(sequence)?.request.tag)
    }

    fn remove(&mut self, sequence: u32) -> Option<Waiting> {
        let waiting = self.waiting.remove(&sequence)?;
        let to = waiting.request.to;
        if let (Tag::Report(_), Some(count)) = (waiting.request.tag, self.reports.get_mut(&to)) {
            *count -= 1;
            if *count == 0 {
                self.reports.remove(&to);
            }
        }
        Some(waiting)
    }

    /// Gives a request up, if it waits.
    pub fn cancel(&mut self, sequence: u32) {
        self.remove(sequence);
    }

    /// Gives up all requests of the node to the association in this place.
    pub fn cancel_of_peer(&mut self, place: u16) {
        let is_of = |tag| match tag {
            Tag::Heartbeat(of) | Tag::Association(of) | Tag::NodeReport(of) => of == place,
            Tag::Setup(_) | Tag::Report(_) => false,
        };
        self.waiting.retain(|_, waiting| !is_of(waiting.request.tag));
    }

    /// Sends again what is due. One that has been sent N1 times is given up: it is returned, and
    /// the caller asks again until there is none.
    pub fn tick(&mut self, now: Now, out: &mut Outbox) -> Option<(Tag, u32)> {
        while let Some(&(deadline, sequence)) = self.deadlines.front() {
            if deadline > now.monotonic {
                return None;
            }
            self.deadlines.pop_front();
            let Some(waiting) = self.waiting.get_mut(&sequence) else { continue };
            if waiting.deadline != deadline {
                continue;
            }
            if waiting.sent >= self.n1 {
                let waiting = self.remove(sequence)?;
                return Some((waiting.request.tag, sequence));
            }
            waiting.sent += 1;
            waiting.deadline = now.monotonic.saturating_add(self.t1);
            self.deadlines.push_back((waiting.deadline, sequence));
            let request = &waiting.request;
            out.send(request.local, request.to, request.bytes.clone());
        }
        None
    }

    /// When [`tick`](Self::tick) has something to do again, at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }
}

/// Whether a message of one type answers one of the other: the type after it, or, to any request,
/// that the version is not supported (clause 7.4.4.7).
const fn answers(request: u8, answer: u8) -> bool {
    answer == 11 || answer == request.wrapping_add(1)
}

#[cfg(test)]
mod tests;
