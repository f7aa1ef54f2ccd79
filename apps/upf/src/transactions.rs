//! PFCP transactions (TS 29.244 clause 6.4): requests of peers and our own, and the messages to send.

mod outbox;
mod requests;
mod response_cache;

use std::net::SocketAddr;

use fastlane_pfcp::Message;

pub use outbox::{LaneMessage, Outbox, Outgoing};
pub use requests::{Busy, Request, Requests, SEQUENCES, Tag, WINDOW};
pub use response_cache::ResponseCache;

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
