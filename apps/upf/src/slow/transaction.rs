//! Requests and their answers (TS 29.244 clause 6.4): those of others, and those of ours.

pub mod answers;
pub mod requests;

use std::net::{IpAddr, SocketAddr};

use super::{Now, Peer};

/// What tells one request of a peer from another: a second one with the same key is a
/// retransmission and gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// Where it came from.
    pub peer: SocketAddr,
    /// Its sequence number, 24 bits.
    pub sequence: u32,
    /// Its message type.
    pub message_type: u8,
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
