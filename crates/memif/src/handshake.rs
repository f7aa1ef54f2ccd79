//! One attempt at a connection, with a bound to its time.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::client::Client;
use crate::message::Message;
use crate::region::Regions;
use crate::ring::Ring;
use crate::server::Server;

/// How long a peer may take for all of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// The most messages of a peer: init, regions, rings both ways, connect, and as many again.
const MOST_MESSAGES: usize = 2048;
/// What the peer is told this program is.
pub(crate) const PROGRAM: &str = concat!("Fastlane ", env!("CARGO_PKG_VERSION"));

/// The eventfd of a ring.
pub(crate) type Bell = OwnedFd;

/// What server and client have agreed on. Rings of a queue that has none are missing.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) regions: Arc<Regions>,
    pub(crate) receive: Vec<Option<(Ring, Bell)>>,
    pub(crate) transmit: Vec<Option<(Ring, Bell)>>,
    /// The peer's interface and program.
    pub(crate) peer: String,
    /// Of a client: its own buffers.
    pub(crate) buffers: Option<crate::client::Layout>,
    /// Of a server: what the client is told when all is ready.
    pub(crate) last: Option<Message>,
}

/// What follows from a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// An answer.
    Reply(Message),
    /// The next of the client's messages, with its descriptor.
    Next,
    /// The end of it.
    Agreed(Agreed),
}

/// Which side of it.
#[derive(Debug)]
pub(crate) enum Side {
    Server(Server),
    Client(Client),
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) channel: Channel,
    pub(crate) side: Side,
    pub(crate) deadline: Instant,
    messages: usize,
}

impl Handshake {
    /// Begins with a client that has connected.
    pub(crate) fn serve(channel: Channel, server: Server) -> Result<Self, String> {
        channel.send(&server.hello(), None)?;
        Ok(Self::new(channel, Side::Server(server)))
    }

    /// Begins with a server that has accepted.
    pub(crate) fn ask(channel: Channel, client: Client) -> Self {
        Self::new(channel, Side::Client(client))
    }

    fn new(channel: Channel, side: Side) -> Self {
        Self { channel, side, deadline: Instant::now() + PATIENCE, messages: 0 }
    }

    /// Goes on with what has arrived: all of it. `Some` when it is done.
    pub(crate) fn advance(&mut self) -> Result<Option<Agreed>, String> {
        while let Some(received) = self.channel.receive()? {
            self.messages += 1;
            if self.messages > MOST_MESSAGES {
                return Err("too many messages".to_owned());
            }
            let step = match &mut self.side {
                Side::Server(server) => server.advance(received),
                Side::Client(client) => client.advance(received),
            };
            match step.inspect_err(|reason| self.channel.disconnect(reason))? {
                Step::Reply(message) => self.channel.send(&message, None)?,
                Step::Next => {
                    if let Side::Client(client) = &mut self.side {
                        client.send_next(&self.channel)?;
                    }
                }
                Step::Agreed(agreed) => return Ok(Some(agreed)),
            }
        }
        Ok(None)
    }
}
