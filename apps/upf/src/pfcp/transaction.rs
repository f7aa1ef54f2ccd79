//! Requests and their answers (TS 29.244 clause 6.4): those of others, and those of ours.

pub mod answers;
pub mod requests;

use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::Message;

use super::Peer;
use crate::time::Now;

/// What tells one request of a peer from another: a second one with the same key is a
/// retransmission and gets the same answer. A retransmission has the same content; a peer that has
/// started again may use a sequence number again for something else, which is another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Where it came from.
    pub peer: SocketAddr,
    /// Its sequence number, 24 bits.
    pub sequence: u32,
    /// Its message type.
    pub message_type: u8,
    /// A digest of its content. It keeps apart what honest peers send, no more.
    pub digest: u32,
}

impl RequestKey {
    /// Of a request from there.
    #[must_use]
    pub fn of(peer: SocketAddr, message: &Message<'_>) -> Self {
        let header = message.header;
        let digest = digest(header.seid.unwrap_or(0), message.body);
        Self { peer, sequence: header.sequence, message_type: header.message_type.0, digest }
    }
}

/// The same in each process, for answers outlive one.
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

/// What a request is handled in.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Now,
    /// The request.
    pub key: RequestKey,
    /// The address of ours that it was sent to: that of our F-SEIDs.
    pub local: IpAddr,
    /// For an establishment: the association of the Node ID in it, if there is one that is up. For
    /// other requests that of a Node ID in it, if there is one.
    pub peer: Option<&'a Peer>,
    /// For how many nanoseconds an answer may be asked for again (N1 times T1).
    pub answer_life: u64,
}
