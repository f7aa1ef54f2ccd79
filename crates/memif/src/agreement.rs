//! The result of a handshake, and the steps that lead to it. Client and server share these types.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::layout::Layout;
use crate::message::Message;
use crate::region::Regions;
use crate::ring::Ring;

/// Name of this program in messages to the peer.
pub(crate) const PROGRAM: &str = concat!("Fastlane ", env!("CARGO_PKG_VERSION"));

/// The eventfd of a ring, by which the sender wakes the receiver. The peer holds it too.
pub(crate) type Doorbell = OwnedFd;

/// A ring with its doorbell.
pub(crate) type BelledRing = (Ring, Doorbell);

/// Everything that client and server have agreed on. Rings are listed by queue; `None` is a queue
/// without a ring.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) regions: Arc<Regions>,
    pub(crate) receive: Vec<Option<BelledRing>>,
    pub(crate) transmit: Vec<Option<BelledRing>>,
    /// Names of the peer's interface and program.
    pub(crate) peer: String,
    /// Layout of the buffers, which only a client has.
    pub(crate) buffers: Option<Layout>,
    /// Message that a server sends once its lanes can receive.
    pub(crate) last: Option<Message>,
}

/// Next step of a handshake after a message of the peer.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this response.
    Reply(Message),
    /// Send the next message of the client, with its descriptor.
    Next,
    /// The handshake is complete.
    Agreed(Agreement),
}
