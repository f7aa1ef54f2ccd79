//! Messages to send, in order.

use std::net::{IpAddr, SocketAddr};

use crate::rules::layout::message::PathMessage;
use crate::session::SessionIndex;

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
