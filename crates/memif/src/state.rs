//! The state of a port, which its owner and its control thread share.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crate::doorbell::signal;

/// State of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// True while a peer is connected.
    pub connected: bool,
    /// Names of the peer's interface and program, as it reports them; empty without a peer.
    pub peer: String,
    /// Number of rings to receive from; this many of the queues receive.
    pub receive_rings: usize,
    /// Number of rings to transmit to; this many of the queues transmit.
    pub transmit_rings: usize,
    /// Slots of the largest ring.
    pub ring_size: usize,
    /// Number of connections since the port was opened.
    pub connections: u64,
    /// Reason why the last connection ended, or why the last attempt failed.
    pub last_end: Option<String>,
}

/// Memory that a [`Link`](crate::Link) shares with its control thread.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Eventfd that wakes the control thread.
    pub(crate) wake: Arc<OwnedFd>,
    /// Set when the control thread is to end.
    pub(crate) stop: AtomicBool,
    pub(crate) state: Mutex<State>,
}

impl SharedState {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (stop, state) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { wake: Arc::new(signal()?), stop, state })
    }
}
