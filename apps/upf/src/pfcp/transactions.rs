//! PFCP transactions (TS 29.244 clause 6.4): requests of peers and our own.

pub mod requests;
pub mod response_cache;

use std::net::{IpAddr, SocketAddr};

use fastlane_pfcp::Message;

use super::Peer;
use crate::time::Now;

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

/// Context of a session request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Current time.
    pub now: Now,
    /// Key of the request.
    pub key: RequestKey,
    /// Our address that it was sent to, used in our F-SEIDs.
    pub local: IpAddr,
    /// Association of the Node ID in the request, if there is one. For an establishment it must be
    /// up.
    pub peer: Option<&'a Peer>,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    pub answer_life: u64,
}
