//! The owner of a memif port.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fastlane_core::PortId;

use crate::channel::{Listener, resolve};
use crate::connection::{Post, raise, signal};
use crate::control::{Control, Meeting};
use crate::{Error, MemifQueue, MemifSettings, Role};

/// What is known of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether there is a peer.
    pub connected: bool,
    /// What the peer says its interface and its program are called; empty without one.
    pub peer: String,
    /// Rings that frames come from: as many of the queues receive.
    pub receive_rings: usize,
    /// Rings that frames go to: as many of the queues send.
    pub transmit_rings: usize,
    /// Slots of the largest ring.
    pub ring_size: usize,
    /// Connections since the port was opened.
    pub connections: u64,
    /// Why the last connection ended, or the last attempt failed.
    pub last_end: Option<String>,
}

/// The owner of a memif port: it finds peers, from a thread of its own. When it is dropped the
/// connection ends, the thread too, and the file of a server's socket is removed.
#[derive(Debug)]
pub struct Link {
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// What is known now.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        raise(&self.wake);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a memif port with the number `port`: its owner, and its queues, each for one lane.
///
/// It returns at once; the peer may come later, go, and come again. The queues may outlive the
/// owner, and then have no peer.
///
/// # Errors
/// What is wrong with the settings, or with the socket of a server, and what to do about it.
pub fn open(settings: MemifSettings, port: PortId) -> Result<(Link, Vec<MemifQueue>), Error> {
    settings.check()?;
    let address = resolve(&settings.socket)?;
    let meeting = match settings.role {
        Role::Server => Meeting::Listen(Listener::open(&settings.socket)?),
        Role::Client => Meeting::Connect(address),
    };
    let socket = settings.socket.to_string();
    let kernel = |action, source| Error::Kernel { socket: socket.clone(), action, source };
    let posts = (0..settings.queues).map(|_| Post::new().map(Arc::new)).collect::<Result<_, _>>();
    let posts: Vec<_> = posts.map_err(|error| kernel("making an eventfd", error.into()))?;
    let wake = Arc::new(signal().map_err(|error| kernel("making an eventfd", error.into()))?);
    let stop = Arc::new(AtomicBool::new(false));
    let state = Arc::new(Mutex::new(State::default()));
    let queues = posts
        .iter()
        .enumerate()
        .map(|(number, post)| MemifQueue::new(Arc::clone(post), number, port, settings.interrupt));
    let queues = queues.collect();
    let [ours, theirs] = [&stop; 2].map(Arc::clone);
    let control =
        Control::new(settings, meeting, posts, Arc::clone(&wake), theirs, Arc::clone(&state));
    let thread = std::thread::Builder::new()
        .name("memif".to_owned())
        .spawn(move || control.run())
        .map_err(|error| kernel("starting a thread", error))?;
    Ok((Link { wake, stop: ours, state, thread: Some(thread) }, queues))
}
