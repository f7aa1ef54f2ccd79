//! Eventfds: private signals between our threads, and the doorbells that the peer holds too.
//!
//! The peer is not trusted with our threads' time. It holds each doorbell, so it can fill the
//! counter (u64::MAX - 1) and clear O_NONBLOCK: the next write blocks until somebody reads. A lane
//! that wrote there would stop. So a lane only sets a bit and raises a private eventfd, and a
//! thread of the connection writes to the doorbells. A peer that blocks this thread stops its own
//! doorbells until the connection ends, and nothing else.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::ReadWriteFlags;

use crate::agreement::Doorbell;

/// Creates an eventfd that only this process holds, so that no write to it blocks.
pub(crate) fn signal() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Raises an eventfd. Fails only if it is raised already.
pub(crate) fn raise(signal: &OwnedFd) {
    let _ = rustix::io::write(signal, &1u64.to_ne_bytes());
}

/// Resets an eventfd.
pub(crate) fn lower(signal: &OwnedFd) {
    let _ = rustix::io::read(signal, &mut [0; 8]);
}

/// The doorbells of a connection, and the state of the thread that rings them.
#[derive(Debug)]
pub(crate) struct Doorbells {
    /// Doorbells by queue.
    peer: Vec<Option<Doorbell>>,
    /// Doorbells to be rung, one bit per queue.
    pending: [AtomicU64; 4],
    call: OwnedFd,
    ended: AtomicBool,
}

impl Doorbells {
    /// Starts the thread.
    pub(crate) fn start(peer: Vec<Option<Doorbell>>) -> std::io::Result<Arc<Self>> {
        let ended = AtomicBool::new(false);
        let doorbells =
            Arc::new(Self { peer, pending: Default::default(), call: signal()?, ended });
        let ours = Arc::clone(&doorbells);
        let name = "memif-bells".to_owned();
        std::thread::Builder::new().name(name).spawn(move || ours.run())?;
        Ok(doorbells)
    }

    /// Requests a ring of the doorbell of a queue.
    #[cold]
    pub(crate) fn ring(&self, queue: usize) {
        if let Some(word) = self.pending.get(queue / 64) {
            word.fetch_or(1 << (queue % 64), Ordering::Release);
            raise(&self.call);
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        raise(&self.call);
    }

    /// Empties the doorbells' counters, so that a blocked write of the thread returns. The reads
    /// themselves do not block (RWF_NOWAIT, preadv2(2)).
    pub(crate) fn unblock(&self) {
        for doorbell in self.peer.iter().flatten() {
            let (mut count, here) = ([0; 8], u64::MAX);
            let mut parts = [IoSliceMut::new(&mut count)];
            let _ = rustix::io::preadv2(doorbell, &mut parts, here, ReadWriteFlags::NOWAIT);
        }
    }

    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let mut wait = [PollFd::new(&self.call, PollFlags::IN)];
            let _ = poll(&mut wait, None);
            lower(&self.call);
            for (queue, doorbell) in self.peer.iter().enumerate() {
                let bit = 1 << (queue % 64);
                let word = &self.pending[queue / 64];
                if word.load(Ordering::Relaxed) & bit != 0 {
                    word.fetch_and(!bit, Ordering::Acquire);
                    doorbell.as_ref().map(ring_if_writable);
                }
            }
        }
    }
}

/// Raises a doorbell unless the write would block. The peer may fill the counter between the check
/// and the write; then [`Doorbells::unblock`] frees the thread when the connection ends.
fn ring_if_writable(doorbell: &Doorbell) {
    let mut space = [PollFd::new(doorbell, PollFlags::OUT)];
    if poll(&mut space, Some(&Timespec::default())) == Ok(1) {
        raise(doorbell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a doorbell whose counter the peer has filled and whose writes block.
    fn full() -> Doorbell {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        doorbell
    }

    #[test]
    fn a_blocked_write_is_released() {
        let mut doorbells = Doorbells::start(vec![Some(full())]).unwrap();
        let theirs = Arc::clone(&doorbells);
        // As the thread would, had the peer filled the counter just before the write.
        let blocked = std::thread::spawn(move || theirs.peer.iter().flatten().for_each(raise));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!blocked.is_finished(), "the write blocks");
        doorbells.unblock();
        blocked.join().unwrap();
        doorbells.end();
        while Arc::get_mut(&mut doorbells).is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_full_doorbell_is_not_rung() {
        ring_if_writable(&full());
    }
}
