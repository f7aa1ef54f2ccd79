//! An established connection, as the control thread holds it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::agreement::{Agreement, BelledRing, Doorbell};
use crate::channel::Channel;
use crate::connection::{Connection, QueueMailbox, QueueRings};
use crate::doorbell::Doorbells;
use crate::layout::Layout;
use crate::receiver::Receiver;
use crate::region::Regions;
use crate::state::State;
use crate::transmitter::Transmitter;

/// A connection whose rings the lanes use.
pub(crate) struct Established {
    pub(crate) channel: Channel,
    pub(crate) connection: Arc<Connection>,
    /// Held until no lane holds them any more, so that no lane unmaps them.
    regions: Arc<Regions>,
    /// Doorbells that the lanes wait for, by queue.
    watched: Vec<(usize, OwnedFd)>,
}

impl Established {
    /// Hands each queue its rings. Returns the new state of the port as well.
    ///
    /// # Errors
    /// Returns the reason if the doorbell thread cannot start or the last message cannot be sent.
    pub(crate) fn new(
        channel: Channel,
        agreement: Agreement,
        mailboxes: &[Arc<QueueMailbox>],
        control: &Arc<OwnedFd>,
    ) -> Result<(Self, State), String> {
        let Agreement { regions, receive, transmit, peer, buffers, last } = agreement;
        let state = State {
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
        let (transmitters, doorbells) = transmitters(transmit, buffers, mailboxes.len());
        let doorbells = Doorbells::start(doorbells)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let connection = Arc::new(Connection::new(Arc::clone(control), doorbells));
        let (receivers, watched) = receivers(receive, buffers, mailboxes.len());
        let established = Self { channel, connection, regions, watched };
        for (queue, doorbell) in &established.watched {
            // After a failure a sleeping lane notices frames late: it polls ten times a second.
            let _ = mailboxes[*queue].watch(doorbell);
        }
        if let Some(last) = last
            && let Err(reason) = established.channel.send(&last, None)
        {
            established.end(&reason, mailboxes);
            return Err(reason);
        }
        for ((mailbox, receiver), transmitter) in mailboxes.iter().zip(receivers).zip(transmitters)
        {
            let connection = Arc::clone(&established.connection);
            drop(mailbox.arrivals.put(QueueRings { connection, receiver, transmitter }));
            mailbox.wake();
        }
        Ok((established, state))
    }

    /// Ends the connection: tells the peer and wakes the lanes, which then drop their rings.
    pub(crate) fn end(self, reason: &str, mailboxes: &[Arc<QueueMailbox>]) -> Retired {
        self.channel.disconnect(reason);
        self.connection.end();
        for (queue, doorbell) in &self.watched {
            mailboxes[*queue].unwatch(doorbell);
        }
        for mailbox in mailboxes {
            mailbox.wake();
        }
        Retired { connection: self.connection, regions: self.regions }
    }
}

/// An ended connection whose rings lanes may still hold.
pub(crate) struct Retired {
    connection: Arc<Connection>,
    regions: Arc<Regions>,
}

impl Retired {
    /// Returns true if no lane holds the connection or its memory any more. Dropping the value then
    /// unmaps and closes everything in this thread, and nothing in a lane.
    pub(crate) fn is_released(&mut self) -> bool {
        Connection::is_released(&mut self.connection) && Arc::get_mut(&mut self.regions).is_some()
    }
}

/// Returns the transmitter of each queue, and the doorbells to be rung after a transmit.
fn transmitters(
    rings: Vec<Option<BelledRing>>,
    layout: Option<Layout>,
    queues: usize,
) -> (Vec<Option<Transmitter>>, Vec<Option<Doorbell>>) {
    let mut both: (Vec<_>, Vec<_>) = rings
        .into_iter()
        .enumerate()
        .map(|(index, ring)| match ring {
            Some((ring, doorbell)) => {
                let buffers = layout.map(|layout| layout.to_server(index));
                (Some(Transmitter::new(ring, buffers)), Some(doorbell))
            }
            None => (None, None),
        })
        .unzip();
    both.0.resize_with(queues, || None);
    both
}

/// Returns the receiver of each queue, and the doorbells that the peer rings, by queue.
fn receivers(
    rings: Vec<Option<BelledRing>>,
    layout: Option<Layout>,
    queues: usize,
) -> (Vec<Option<Receiver>>, Vec<(usize, Doorbell)>) {
    let (mut receivers, mut watched) = (Vec::new(), Vec::new());
    for (index, ring) in rings.into_iter().enumerate() {
        receivers.push(ring.map(|(ring, doorbell)| {
            watched.push((index, doorbell));
            Receiver::new(ring, layout.map(|layout| layout.to_client(index)))
        }));
    }
    receivers.resize_with(queues, || None);
    (receivers, watched)
}
