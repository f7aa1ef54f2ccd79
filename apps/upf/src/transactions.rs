//! PFCP transactions (TS 29.244 clause 6.4): requests of peers and our own, and the messages to
//! send.
//!
//! [`ResponseCache`] keeps responses to node related requests while a retransmission may arrive.
//! Responses to session requests are in the session store; those that changed an association are
//! also in its record.
//! [`Requests`] has our own, which are retransmitted each T1 and sent N1 times in all.

mod usage_records;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::Message;

use crate::rules::layout::message::PathMessage;
use crate::session::SessionIndex;
use crate::time::Now;

pub use usage_records::{
    Counts, ReportCarrier, SessionIdentity, UsageEvent, UsageRecord, UsageRecords,
};

/// Key of a request. A second request with the same key is a retransmission and gets the same
/// response. A restarted peer may reuse a sequence number with other content; that is another
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Source of the request.
    pub peer: SocketAddr,
    /// Sequence number, 24 bits.
    pub sequence: u32,
    /// Message type.
    pub message_type: u8,
    /// Digest of the content. It only distinguishes requests of honest peers.
    pub digest: u32,
}

impl RequestKey {
    /// Creates the key of a request.
    #[must_use]
    pub fn of(peer: SocketAddr, message: &Message<'_>) -> Self {
        let header = message.header;
        let digest = digest(header.seid.unwrap_or(0), message.body);
        Self { peer, sequence: header.sequence, message_type: header.message_type.0, digest }
    }
}

/// Returns a digest of the content. It is the same in each process, because stored responses
/// outlive one.
fn digest(seid: u64, body: &[u8]) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let begin = seid.wrapping_mul(ODD) ^ body.len() as u64;
    let hash = body.chunks(8).fold(begin, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(ODD).rotate_left(29)
    });
    (hash ^ hash >> 32) as u32
}

/// Protocol of a datagram on N4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum N4Protocol {
    /// PFCP: N4.
    Pfcp,
    /// GTP-U: N4-u.
    GtpU,
}

/// Datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Protocol, which has its own sockets.
    pub protocol: N4Protocol,
    /// Our address to send from; none leaves the choice to the sender.
    pub local: Option<IpAddr>,
    /// Destination address.
    pub to: SocketAddr,
    /// Encoded message.
    pub bytes: Vec<u8>,
}

/// Message to a lane; it is a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneMessage {
    /// The rules of a session have changed.
    Rules(SessionIndex),
    /// Send an echo request.
    Probe(PathMessage),
    /// Body of a message with a packet for the UE of a session: a
    /// [`UserPacket`](crate::rules::layout::message::UserPacket) and the packet.
    UserPacket(Vec<u8>),
}

/// Messages collected during a call. Its creator sends and clears them.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Datagrams to send.
    pub datagrams: Vec<Outgoing>,
    /// Messages to lanes.
    pub lanes: Vec<LaneMessage>,
    /// Peers whose neighbours Linux must resolve.
    pub neighbours: Vec<IpAddr>,
    /// Usage records for collectors.
    pub usage: UsageRecords,
}

impl Outbox {
    /// Creates an empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a PFCP message.
    pub fn send(&mut self, local: Option<IpAddr>, to: SocketAddr, bytes: Vec<u8>) {
        self.datagrams.push(Outgoing { protocol: N4Protocol::Pfcp, local, to, bytes });
    }

    /// Appends a GTP-U message.
    pub fn send_gtpu(&mut self, local: Option<IpAddr>, to: SocketAddr, bytes: Vec<u8>) {
        self.datagrams.push(Outgoing { protocol: N4Protocol::GtpU, local, to, bytes });
    }

    /// Appends a message to the lanes that the rules of a session have changed.
    pub fn rules_changed(&mut self, session: SessionIndex) {
        self.lanes.push(LaneMessage::Rules(session));
    }

    /// Asks Linux to resolve the neighbour of a peer or its router.
    pub fn find_out(&mut self, peer: IpAddr) {
        self.neighbours.push(peer);
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.lanes.clear();
        self.neighbours.clear();
        self.usage.clear();
    }
}

/// Maximum number of responses; the oldest are evicted.
const MOST: usize = 4096;

/// Stored responses by request.
#[derive(Debug)]
pub struct ResponseCache {
    life: u64,
    given: HashMap<RequestKey, Vec<u8>>,
    /// Time of each response, oldest first.
    order: VecDeque<(u64, RequestKey)>,
}

impl ResponseCache {
    /// Creates a cache whose responses live for `life` nanoseconds.
    #[must_use]
    pub fn new(life: u64) -> Self {
        Self { life, given: HashMap::new(), order: VecDeque::new() }
    }

    /// Returns the response to a retransmitted request.
    pub fn find(&mut self, now: Now, key: &RequestKey) -> Option<&[u8]> {
        self.expire(now);
        self.given.get(key).map(Vec::as_slice)
    }

    /// Stores a response. Evicts the oldest one if the cache is full.
    pub fn keep(&mut self, now: Now, key: RequestKey, bytes: Vec<u8>) {
        self.expire(now);
        if self.order.len() >= MOST {
            self.forget_oldest();
        }
        if self.given.insert(key, bytes).is_none() {
            self.order.push_back((now.monotonic, key));
        }
    }

    /// Removes the responses whose life is over.
    fn expire(&mut self, now: Now) {
        let life = self.life;
        let is_old = |at: u64| now.monotonic.saturating_sub(at) >= life;
        while self.order.front().is_some_and(|(at, _)| is_old(*at)) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.given.remove(&key);
        }
    }
}

/// Maximum number of session requests without response. A peer may have at most as many as are
/// left, so a silent peer gets half and does not delay the others.
pub const WINDOW: usize = 4096;
/// Maximum number of requests of all kinds. The rest is reserved for node related requests when a
/// silent peer has used up its share.
const ALL: usize = WINDOW + 2048;
/// Number of sequence numbers: 24 bits (clause 7.2.2.2).
pub const SEQUENCES: u32 = 1 << 24;

/// Handler of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Heartbeat to the association with this index.
    Heartbeat(u16),
    /// Heartbeat to an alternative address of the association with this index.
    Alternative(u16),
    /// Association setup with a configured control plane, by its index there.
    Setup(usize),
    /// Association update that requests the release of the association with this index.
    Association(u16),
    /// Node report to the association with this index.
    NodeReport(u16),
    /// Session report, handled by `Usage`.
    Report(SessionIndex),
}

/// Request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Encoded message.
    pub bytes: Vec<u8>,
    /// Sequence number: from [`Requests::sequence`], or that of a request before a restart, which
    /// is thus retransmitted.
    pub sequence: u32,
    /// Destination. The response must come from there.
    pub to: SocketAddr,
    /// Our address to send from; none leaves the choice to the sender.
    pub local: Option<IpAddr>,
    /// Handler of the response.
    pub tag: Tag,
}

/// Our requests without response.
#[derive(Debug)]
pub struct Requests {
    t1: u64,
    n1: u32,
    next: u32,
    waiting: HashMap<u32, Waiting>,
    /// Number of session requests by destination.
    reports: HashMap<SocketAddr, usize>,
    /// Retransmission times in ascending order, because T1 is the same for all.
    deadlines: VecDeque<(u64, u32)>,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    sent: u32,
    /// Time of retransmission or cancellation. Other entries in `deadlines` are obsolete.
    deadline: u64,
}

/// Error: too many requests, or the sequence number is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl Requests {
    /// Creates an empty set with T1 in nanoseconds. The first sequence number must not have been
    /// used in the last N1 times T1.
    #[must_use]
    pub fn new(t1: u64, n1: u32, first: u32) -> Self {
        let (waiting, reports, deadlines) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Self { t1: t1.max(1), n1: n1.max(1), next: first % SEQUENCES, waiting, reports, deadlines }
    }

    /// Returns the sequence number for a new request.
    pub fn sequence(&mut self) -> u32 {
        loop {
            let sequence = self.next;
            self.next = (self.next + 1) % SEQUENCES;
            if !self.waiting.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    /// Returns the next candidate of [`sequence`](Self::sequence).
    #[must_use]
    pub const fn next_sequence(&self) -> u32 {
        self.next
    }

    /// Returns the number of session requests that may be sent now.
    #[must_use]
    pub fn room(&self) -> usize {
        WINDOW.saturating_sub(self.waiting.len())
    }

    /// Returns the number of session requests that may be sent to a peer now.
    #[must_use]
    pub fn room_for(&self, to: SocketAddr) -> usize {
        self.room().saturating_sub(self.reports.get(&to).copied().unwrap_or(0))
    }

    /// Returns the number of requests without response.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no request waits for a response.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a request and retransmits it until the response arrives.
    ///
    /// # Errors
    /// Too many requests are pending, or the sequence number is in use. Nothing is sent then; try
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

    /// Returns the request that a response belongs to, which no longer waits. Returns `None` if
    /// there is none.
    pub fn answered(
        &mut self,
        from: SocketAddr,
        sequence: u32,
        answer_type: u8,
    ) -> Option<Request> {
        let waiting = self.waiting.get(&sequence)?;
        let asked = waiting.request.bytes.get(1).copied()?;
        if waiting.request.to != from || !answers(asked, answer_type) {
            return None;
        }
        Some(self.remove(sequence)?.request)
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

    /// Cancels a request, if it is pending.
    pub fn cancel(&mut self, sequence: u32) {
        self.remove(sequence);
    }

    /// Cancels the node related requests to an association.
    pub fn cancel_of_peer(&mut self, place: u16) {
        let is_of = |tag| match tag {
            Tag::Heartbeat(of)
            | Tag::Alternative(of)
            | Tag::Association(of)
            | Tag::NodeReport(of) => of == place,
            Tag::Setup(_) | Tag::Report(_) => false,
        };
        self.waiting.retain(|_, waiting| !is_of(waiting.request.tag));
    }

    /// Cancels the heartbeats to alternative addresses of an association.
    pub fn cancel_search(&mut self, place: u16) {
        self.waiting.retain(|_, waiting| waiting.request.tag != Tag::Alternative(place));
    }

    /// Cancels all association updates.
    pub fn cancel_association_updates(&mut self) {
        let is_update = |waiting: &Waiting| matches!(waiting.request.tag, Tag::Association(_));
        self.waiting.retain(|_, waiting| !is_update(waiting));
    }

    /// Retransmits due requests. Returns a request that was sent N1 times and is given up; call it
    /// until it returns `None`.
    pub fn tick(&mut self, now: Now, out: &mut Outbox) -> Option<Request> {
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
                return Some(self.remove(sequence)?.request);
            }
            waiting.sent += 1;
            waiting.deadline = now.monotonic.saturating_add(self.t1);
            self.deadlines.push_back((waiting.deadline, sequence));
            let request = &waiting.request;
            out.send(request.local, request.to, request.bytes.clone());
        }
        None
    }

    /// Returns the latest time of the next [`tick`](Self::tick).
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }
}

/// Returns true if a message type is the response to another: the next type, or Version Not
/// Supported (clause 7.4.4.7).
const fn answers(request: u8, answer: u8) -> bool {
    answer == 11 || answer == request.wrapping_add(1)
}

#[cfg(test)]
mod tests;
