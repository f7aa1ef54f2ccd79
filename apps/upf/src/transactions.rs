//! PFCP transactions (TS 29.244 clause 6.4): requests of peers and our own, and the messages to
//! send.
//!
//! [`ResponseCache`] keeps responses to node related requests while a retransmission may arrive.
//! Responses to session requests are in the session store; those that changed an association are
//! also in its record.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::Message;

use crate::rules::layout::message::PathMessage;
use crate::session::SessionIndex;
use crate::time::Now;

mod requests;

pub use requests::{Busy, Request, Requests, SEQUENCES, Tag, WINDOW};

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

/// Datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Our address to send from; none leaves the choice to the sender.
    pub local: Option<IpAddr>,
    /// Destination address.
    pub to: SocketAddr,
    /// Encoded message.
    pub bytes: Vec<u8>,
}

/// Message to a lane; it is a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMessage {
    /// The rules of a session have changed.
    Rules(SessionIndex),
    /// Send an echo request.
    Probe(PathMessage),
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
}

impl Outbox {
    /// Creates an empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a datagram.
    pub fn send(&mut self, local: Option<IpAddr>, to: SocketAddr, bytes: Vec<u8>) {
        self.datagrams.push(Outgoing { local, to, bytes });
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
        self.forget(now);
        self.given.get(key).map(Vec::as_slice)
    }

    /// Stores a response.
    pub fn keep(&mut self, now: Now, key: RequestKey, bytes: Vec<u8>) {
        self.forget(now);
        if self.given.insert(key, bytes).is_none() {
            self.order.push_back((now.monotonic, key));
        }
    }

    fn forget(&mut self, now: Now) {
        while let Some(&(at, key)) = self.order.front() {
            let is_old = now.monotonic.saturating_sub(at) >= self.life;
            if !is_old && self.order.len() < MOST {
                break;
            }
            self.order.pop_front();
            self.given.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(sequence: u32) -> RequestKey {
        let peer = (Ipv4Addr::LOCALHOST, 8805).into();
        RequestKey { peer, sequence, message_type: 5, digest: 0 }
    }

    fn at(monotonic: u64) -> Now {
        Now { monotonic, real: 0 }
    }

    #[test]
    fn an_answer_is_kept_for_its_life() {
        let mut answers = ResponseCache::new(100);
        answers.keep(at(7), key(1), vec![1]);
        assert_eq!(answers.find(at(106), &key(1)), Some(&[1][..]));
        assert_eq!(answers.find(at(106), &key(2)), None);
        assert_eq!(answers.find(at(107), &key(1)), None);
        assert!(answers.given.is_empty() && answers.order.is_empty());
    }

    #[test]
    fn there_are_never_too_many() {
        let mut answers = ResponseCache::new(100);
        for sequence in 0..10_000 {
            answers.keep(at(0), key(sequence), vec![0; 8]);
            assert!(answers.given.len() <= MOST && answers.order.len() <= MOST);
        }
        assert!(answers.find(at(0), &key(9_999)).is_some());
        assert!(answers.find(at(0), &key(0)).is_none());
    }
}
