//! One handshake with a peer, bounded in time and in messages.

use std::time::{Duration, Instant};

use crate::agreement::{Agreement, Step};
use crate::channel::Channel;
use crate::client::Client;
use crate::server::Server;

/// Maximum duration of a handshake. A peer that is silent, or sends slowly on purpose, cannot hold
/// one of the few handshakes of a server for longer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of messages of a peer: init, regions, rings in both directions, connect, and as
/// many again. A peer that keeps sending would otherwise keep the control thread in this loop.
const MAX_MESSAGES: usize = 2048;

/// Role of this end, with its state.
#[derive(Debug)]
pub(crate) enum Side {
    Server(Server),
    Client(Client),
}

/// A handshake in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) channel: Channel,
    pub(crate) side: Side,
    pub(crate) deadline: Instant,
    messages: usize,
}

impl Handshake {
    /// Starts the handshake with a client that has connected, by sending hello.
    pub(crate) fn as_server(channel: Channel, server: Server) -> Result<Self, String> {
        channel.send(&server.hello(), None)?;
        Ok(Self::new(channel, Side::Server(server)))
    }

    /// Starts the handshake with a server that has accepted; it sends hello.
    pub(crate) fn as_client(channel: Channel, client: Client) -> Self {
        Self::new(channel, Side::Client(client))
    }

    fn new(channel: Channel, side: Side) -> Self {
        Self { channel, side, deadline: Instant::now() + TIMEOUT, messages: 0 }
    }

    /// Processes all messages that have arrived. Returns the agreement if the handshake is
    /// complete.
    ///
    /// # Errors
    /// Returns the reason to end the handshake; the peer has been told.
    pub(crate) fn advance(&mut self) -> Result<Option<Agreement>, String> {
        while let Some(received) = self.channel.receive()? {
            self.messages += 1;
            if self.messages > MAX_MESSAGES {
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
                Step::Agreed(agreement) => return Ok(Some(agreement)),
            }
        }
        Ok(None)
    }
}
