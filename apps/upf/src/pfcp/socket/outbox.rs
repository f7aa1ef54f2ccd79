//! What is to be sent, in order.

use std::net::{IpAddr, SocketAddr};

use crate::rules::layout::message::PathMessage;
use crate::session::SessionId;

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The address of ours that it leaves from; none leaves that to whoever sends it.
    pub local: Option<IpAddr>,
    /// Where it goes.
    pub to: SocketAddr,
    /// What it is.
    pub bytes: Vec<u8>,
}

/// A message to a lane: a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneMessage {
    /// The rules of a session have changed: look at them now.
    Rules(SessionId),
    /// Send an echo request.
    Probe(PathMessage),
}

/// What is to be sent when a call is over. It is emptied by whoever made it.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Datagrams.
    pub datagrams: Vec<Outgoing>,
    /// Messages to lanes.
    pub lanes: Vec<LaneMessage>,
    /// Peers whose neighbours Linux is to find out.
    pub neighbours: Vec<IpAddr>,
}

impl Outbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a datagram.
    pub fn send(&mut self, local: Option<IpAddr>, to: SocketAddr, bytes: Vec<u8>) {
        self.datagrams.push(Outgoing { local, to, bytes });
    }

    /// Says that the rules of a session have changed.
    pub fn rules_changed(&mut self, session: SessionId) {
        self.lanes.push(LaneMessage::Rules(session));
    }

    /// Has Linux find out the Ethernet address of a peer, or of the router before it.
    pub fn find_out(&mut self, peer: IpAddr) {
        self.neighbours.push(peer);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.lanes.clear();
        self.neighbours.clear();
    }
}
