//! A connection from the control thread's side.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::channel::Channel;
use crate::client::Layout;
use crate::connection::{Bells, Connection, Part, Post};
use crate::handshake::{Agreed, Bell};
use crate::link::State;
use crate::receiver::Receiver;
use crate::region::Regions;
use crate::ring::Ring;
use crate::transmitter::Transmitter;

/// A connection that works.
pub(crate) struct Live {
    pub(crate) channel: Channel,
    pub(crate) connection: Arc<Connection>,
    /// Held until no lane has them any more, so that no lane is who unmaps them.
    regions: Arc<Regions>,
    /// The eventfds of the peer's that the lanes can wait for, by queue.
    watched: Vec<(usize, OwnedFd)>,
}

impl Live {
    /// Gives each queue its part. Returns the facts besides.
    pub(crate) fn new(
        channel: Channel,
        agreed: Agreed,
        posts: &[Arc<Post>],
        control: &Arc<OwnedFd>,
    ) -> Result<(Self, State), String> {
        let Agreed { regions, receive, transmit, peer, buffers, last } = agreed;
        let facts = State {
            connected: true,
            peer,
            receive_rings: receive.iter().flatten().count(),
            transmit_rings: transmit.iter().flatten().count(),
            ring_size: receive
                .iter()
                .chain(&transmit)
                .flatten()
                .map(|(ring, _)| ring.size())
                .max()
                .map_or(0, usize::from),
            ..State::default()
        };
        let (transmitters, bells) = transmitters(transmit, buffers, posts.len());
        let bells = Bells::start(bells).map_err(|error| format!("no thread: {error}"))?;
        let connection = Arc::new(Connection::new(Arc::clone(control), bells));
        let (receivers, watched) = receivers(receive, buffers, posts.len());
        let live = Self { channel, connection, regions, watched };
        for (queue, bell) in &live.watched {
            // Without it a lane that sleeps wakes up late; it looks ten times a second anyway.
            let _ = posts[*queue].watch(bell);
        }
        if let Some(last) = last
            && let Err(reason) = live.channel.send(&last, None)
        {
            live.end(&reason, posts);
            return Err(reason);
        }
        for ((post, receiver), transmitter) in posts.iter().zip(receivers).zip(transmitters) {
            let connection = Arc::clone(&live.connection);
            drop(post.arrivals.put(Part { connection, receiver, transmitter }));
            post.wake();
        }
        Ok((live, facts))
    }

    /// Tells peer and lanes that it is over.
    pub(crate) fn end(self, reason: &str, posts: &[Arc<Post>]) -> Retired {
        self.channel.disconnect(reason);
        self.connection.end();
        for (queue, bell) in &self.watched {
            posts[*queue].forget(bell);
        }
        for post in posts {
            post.wake();
        }
        Retired { connection: self.connection, regions: self.regions }
    }
}

/// What lanes may still have of a connection that is over.
pub(crate) struct Retired {
    connection: Arc<Connection>,
    regions: Arc<Regions>,
}

impl Retired {
    /// Whether nobody else has it any more: then it can be dropped, and nothing is unmapped, closed
    /// or freed by a lane.
    pub(crate) fn is_released(&mut self) -> bool {
        Connection::is_released(&mut self.connection) && Arc::get_mut(&mut self.regions).is_some()
    }
}

/// The senders of the queues, and the bells of those who receive from them.
fn transmitters(
    rings: Vec<Option<(Ring, Bell)>>,
    layout: Option<Layout>,
    queues: usize,
) -> (Vec<Option<Transmitter>>, Vec<Option<Bell>>) {
    let mut both: (Vec<_>, Vec<_>) = rings
        .into_iter()
        .enumerate()
        .map(|(index, ring)| match ring {
            Some((ring, bell)) => {
                let buffers = layout.map(|layout| layout.to_server(index));
                (Some(Transmitter::new(ring, buffers)), Some(bell))
            }
            None => (None, None),
        })
        .unzip();
    both.0.resize_with(queues, || None);
    both
}

/// The receivers of the queues, and what rings for them.
fn receivers(
    rings: Vec<Option<(Ring, Bell)>>,
    layout: Option<Layout>,
    queues: usize,
) -> (Vec<Option<Receiver>>, Vec<(usize, Bell)>) {
    let (mut receivers, mut watched) = (Vec::new(), Vec::new());
    for (index, ring) in rings.into_iter().enumerate() {
        receivers.push(ring.map(|(ring, bell)| {
            watched.push((index, bell));
            Receiver::new(ring, layout.map(|layout| layout.to_client(index)))
        }));
    }
    receivers.resize_with(queues, || None);
    (receivers, watched)
}
