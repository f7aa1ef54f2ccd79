//! What the control thread and the lanes share of a connection.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastlane_core::Mailbox;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::ReadWriteFlags;

use crate::receiver::Receiver;
use crate::transmitter::Transmitter;

/// Makes an eventfd that only this process has, so that nothing ever waits on it unasked.
pub(crate) fn signal() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Raises such an eventfd. It cannot fail but when it is raised already.
pub(crate) fn raise(signal: &OwnedFd) {
    let _ = rustix::io::write(signal, &1u64.to_ne_bytes());
}

/// Lowers it.
pub(crate) fn lower(signal: &OwnedFd) {
    let _ = rustix::io::read(signal, &mut [0; 8]);
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Set by the control thread: nothing comes any more, let go.
    ended: AtomicBool,
    /// Set by a lane: the peer broke the rules.
    violated: AtomicBool,
    /// The control thread's.
    control: Arc<OwnedFd>,
    bells: Arc<Bells>,
}

impl Connection {
    pub(crate) fn new(control: Arc<OwnedFd>, bells: Arc<Bells>) -> Self {
        let (ended, violated) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { ended, violated, control, bells }
    }

    /// Whether it is over.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Says that it is over.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bells.end();
    }

    /// A lane has found that the peer breaks the rules.
    pub(crate) fn accuse(&self) {
        self.violated.store(true, Ordering::Release);
        raise(&self.control);
    }

    pub(crate) fn is_accused(&self) -> bool {
        self.violated.load(Ordering::Acquire)
    }

    /// Whether nobody else has it any more. To be asked until it is so: it frees the bells.
    pub(crate) fn is_released(connection: &mut Arc<Self>) -> bool {
        let Some(connection) = Arc::get_mut(connection) else { return false };
        if Arc::get_mut(&mut connection.bells).is_none() {
            connection.bells.free();
            return false;
        }
        true
    }

    /// Rings for the ring of a queue.
    #[cold]
    pub(crate) fn ring(&self, queue: usize) {
        self.bells.ring(queue);
    }
}

/// The part of a connection that one queue has.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) connection: Arc<Connection>,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) transmitter: Option<Transmitter>,
}

/// Where the control thread reaches a queue.
#[derive(Debug)]
pub(crate) struct Post {
    /// New connections.
    pub(crate) arrivals: Mailbox<Part>,
    /// What the queue's lane can wait for: `call`, and the eventfd of the peer's that there is.
    pub(crate) interrupt: OwnedFd,
    call: OwnedFd,
}

impl Post {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (interrupt, call) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, signal()?);
        let post = Self { arrivals: Mailbox::default(), interrupt, call };
        post.watch(&post.call)?;
        Ok(post)
    }

    /// Lets the lane wait for an eventfd. Each raise is told once, so that nobody needs to lower
    /// it: a read of what the peer has too could wait for ever.
    pub(crate) fn watch(&self, signal: impl AsFd) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.interrupt, signal, epoll::EventData::new_u64(0), flags)
    }

    /// The contrary.
    pub(crate) fn forget(&self, signal: impl AsFd) {
        let _ = epoll::delete(&self.interrupt, signal);
    }

    /// Wakes the lane.
    pub(crate) fn wake(&self) {
        raise(&self.call);
    }

    /// For the lane: what was told until now is known.
    pub(crate) fn acknowledge(&self) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 4];
        let _ = epoll::wait(&self.interrupt, &mut events, Some(&Timespec::default()));
    }
}

/// The peer's eventfds, and a thread that raises them.
///
/// A lane never writes to them itself: the peer has them too and could make a write wait, by
/// filling the counter and taking O_NONBLOCK away. So a lane marks the queue and raises an eventfd
/// of our own; a peer that plays such tricks stops its own bells, until the connection ends.
#[derive(Debug)]
pub(crate) struct Bells {
    theirs: Vec<Option<OwnedFd>>,
    /// A bit for each queue.
    pending: [AtomicU64; 4],
    call: OwnedFd,
    ended: AtomicBool,
}

impl Bells {
    /// Starts the thread.
    pub(crate) fn start(theirs: Vec<Option<OwnedFd>>) -> std::io::Result<Arc<Self>> {
        let ended = AtomicBool::new(false);
        let bells = Arc::new(Self { theirs, pending: Default::default(), call: signal()?, ended });
        let ours = Arc::clone(&bells);
        let name = "memif-bells".to_owned();
        std::thread::Builder::new().name(name).spawn(move || ours.run())?;
        Ok(bells)
    }

    #[cold]
    fn ring(&self, queue: usize) {
        if let Some(word) = self.pending.get(queue / 64) {
            word.fetch_or(1 << (queue % 64), Ordering::Release);
            raise(&self.call);
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        raise(&self.call);
    }

    /// Lets a write that waits go on, by emptying what is full; without waiting itself
    /// (RWF_NOWAIT, preadv2(2)).
    fn free(&self) {
        for bell in self.theirs.iter().flatten() {
            let (mut count, here) = ([0; 8], u64::MAX);
            let mut parts = [IoSliceMut::new(&mut count)];
            let _ = rustix::io::preadv2(bell, &mut parts, here, ReadWriteFlags::NOWAIT);
        }
    }

    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let mut wait = [PollFd::new(&self.call, PollFlags::IN)];
            let _ = poll(&mut wait, None);
            lower(&self.call);
            for (queue, bell) in self.theirs.iter().enumerate() {
                let bit = 1 << (queue % 64);
                let word = &self.pending[queue / 64];
                if word.load(Ordering::Relaxed) & bit != 0 {
                    word.fetch_and(!bit, Ordering::Acquire);
                    bell.as_ref().map(ring_theirs);
                }
            }
        }
    }
}

/// Raises an eventfd that the peer has too, unless that could wait.
fn ring_theirs(bell: &OwnedFd) {
    let mut space = [PollFd::new(bell, PollFlags::OUT)];
    if poll(&mut space, Some(&Timespec::default())) == Ok(1) {
        raise(bell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_is_stuck_is_freed() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let bells = Bells::start(vec![Some(bell)]).unwrap();
        let theirs = Arc::clone(&bells);
        // As the thread would, had the peer filled the counter just before the write.
        let stuck = std::thread::spawn(move || theirs.theirs.iter().flatten().for_each(raise));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!stuck.is_finished(), "the write waits");
        let mut connection = Arc::new(Connection::new(Arc::new(signal().unwrap()), bells));
        assert!(!Connection::is_released(&mut connection));
        stuck.join().unwrap();
        connection.end();
        while !Connection::is_released(&mut connection) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_full_bell_is_not_rung() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        ring_theirs(&bell);
    }
}
