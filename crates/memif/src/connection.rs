//! The parts of a connection that the control thread and the lanes share.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastlane_core::Mailbox;
use rustix::event::{Timespec, epoll};

use crate::doorbell::{Doorbells, raise, signal};
use crate::receiver::Receiver;
use crate::transmitter::Transmitter;

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Set by the control thread: no frames arrive any more, and the lanes drop their rings.
    ended: AtomicBool,
    /// Set by a lane that found a violation of the protocol.
    violated: AtomicBool,
    /// Eventfd that wakes the control thread.
    control: Arc<OwnedFd>,
    doorbells: Arc<Doorbells>,
}

impl Connection {
    pub(crate) fn new(control: Arc<OwnedFd>, doorbells: Arc<Doorbells>) -> Self {
        let (ended, violated) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { ended, violated, control, doorbells }
    }

    /// Returns true if the connection has ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Marks the connection as ended, and ends its doorbell thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.doorbells.end();
    }

    /// Reports a violation to the control thread, which disconnects the peer.
    pub(crate) fn report_violation(&self) {
        self.violated.store(true, Ordering::Release);
        raise(&self.control);
    }

    /// Returns true if a lane reported a violation.
    pub(crate) fn is_violated(&self) -> bool {
        self.violated.load(Ordering::Acquire)
    }

    /// Returns true if no lane and no thread holds the connection any more. Must be called until it
    /// returns true, because it also releases a doorbell thread that the peer has blocked.
    pub(crate) fn is_released(connection: &mut Arc<Self>) -> bool {
        let Some(connection) = Arc::get_mut(connection) else { return false };
        if Arc::get_mut(&mut connection.doorbells).is_none() {
            connection.doorbells.unblock();
            return false;
        }
        true
    }

    /// Rings the doorbell of a queue.
    #[cold]
    pub(crate) fn ring(&self, queue: usize) {
        self.doorbells.ring(queue);
    }
}

/// The rings of one queue in a connection.
#[derive(Debug)]
pub(crate) struct QueueRings {
    pub(crate) connection: Arc<Connection>,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) transmitter: Option<Transmitter>,
}

/// The way by which the control thread reaches a queue: a mailbox, and the lane's interrupt.
#[derive(Debug)]
pub(crate) struct QueueMailbox {
    /// Rings of a new connection.
    pub(crate) arrivals: Mailbox<QueueRings>,
    /// Epoll instance that the queue's lane can wait for. It watches `call`, and the doorbell of
    /// the receive ring while there is a connection.
    pub(crate) interrupt: OwnedFd,
    call: OwnedFd,
}

impl QueueMailbox {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (interrupt, call) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, signal()?);
        let mailbox = Self { arrivals: Mailbox::default(), interrupt, call };
        mailbox.watch(&mailbox.call)?;
        Ok(mailbox)
    }

    /// Adds an eventfd to those that wake the lane. The watch is edge-triggered, so nobody has to
    /// reset the eventfd: a read of a doorbell, which the peer holds too, could block.
    pub(crate) fn watch(&self, signal: impl AsFd) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.interrupt, signal, epoll::EventData::new_u64(0), flags)
    }

    /// Removes an eventfd from those that wake the lane.
    pub(crate) fn unwatch(&self, signal: impl AsFd) {
        let _ = epoll::delete(&self.interrupt, signal);
    }

    /// Wakes the lane.
    pub(crate) fn wake(&self) {
        raise(&self.call);
    }

    /// Consumes the events that arrived until now. For the lane.
    pub(crate) fn drain_events(&self) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 4];
        let _ = epoll::wait(&self.interrupt, &mut events, Some(&Timespec::default()));
    }
}
