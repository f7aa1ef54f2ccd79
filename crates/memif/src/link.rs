//! The owner of a memif port.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use fastlane_core::PortId;

use crate::channel::{Listener, resolve};
use crate::connection::QueueMailbox;
use crate::control::{Control, Endpoint};
use crate::doorbell::raise;
use crate::state::{SharedState, State};
use crate::{Error, MemifQueue, MemifSettings, Role};

/// The owner of a memif port. Its control thread waits for peers or connects to them. Dropping the
/// value ends the connection and the thread, and removes the file of a server's socket.
#[derive(Debug)]
pub struct Link {
    shared: Arc<SharedState>,
    queues: usize,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Returns the number of queues of the port.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Returns the present state of the port.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        raise(&self.shared.wake);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a memif port with the number `port`; returns its owner, and its queues, each for one lane.
///
/// Returns at once, without waiting for a peer. A peer may connect later, disconnect, and connect
/// again. The queues may outlive the owner; they have no peer then.
///
/// # Errors
/// Returns the setting that is invalid, or the failure of a server's socket, with the remedy.
pub fn open(settings: MemifSettings, port: PortId) -> Result<(Link, Vec<MemifQueue>), Error> {
    settings.check()?;
    let address = resolve(&settings.socket)?;
    let endpoint = match settings.role {
        Role::Server => Endpoint::Listen(Listener::open(&settings.socket)?),
        Role::Client => Endpoint::Connect(address),
    };
    let socket = settings.socket.to_string();
    let kernel = |action, source| Error::Kernel { socket: socket.clone(), action, source };
    let no_eventfd = |error: rustix::io::Errno| kernel("creating an eventfd", error.into());
    let mailboxes = (0..settings.queues).map(|_| QueueMailbox::new().map(Arc::new));
    let mailboxes: Vec<_> = mailboxes.collect::<Result<_, _>>().map_err(no_eventfd)?;
    let shared = Arc::new(SharedState::new().map_err(no_eventfd)?);
    let queues = mailboxes.iter().enumerate().map(|(number, mailbox)| {
        MemifQueue::new(Arc::clone(mailbox), number, port, settings.interrupt)
    });
    let queues = queues.collect();
    let count = mailboxes.len();
    let control = Control::new(settings, endpoint, mailboxes, Arc::clone(&shared));
    let thread = std::thread::Builder::new()
        .name("memif".to_owned())
        .spawn(move || control.run())
        .map_err(|error| kernel("starting a thread", error))?;
    Ok((Link { shared, queues: count, thread: Some(thread) }, queues))
}
