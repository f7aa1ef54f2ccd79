//! Doorbell: an eventfd that wakes a thread of another process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;

/// A doorbell: an eventfd (eventfd(2)) that never blocks. It is readable from the moment it is rung
/// until it is drained.
///
/// Everyone who has the descriptor can ring, drain, or make it blocking for all others. It is
/// therefore for processes that trust each other that far.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// Creates a doorbell that is not rung.
    ///
    /// # Errors
    /// Returns an error if the process has no free descriptor.
    pub fn create() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Attaches to a doorbell that another process created.
    ///
    /// # Errors
    /// Returns an error if it cannot be made non-blocking.
    pub fn attach(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Self(descriptor))
    }

    /// Duplicates the descriptor of the doorbell.
    ///
    /// # Errors
    /// Returns an error if the process has no free descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Makes the doorbell readable, by one system call.
    pub fn ring(&self) {
        // It fails only if the count would overflow 2^64 - 1; the doorbell is readable then anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the doorbell unreadable, by one system call. Returns true if it was rung.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once_however_often_it_was_rung_and_never_blocks() {
        let ours = Doorbell::create().unwrap();
        let theirs = Doorbell::attach(eventfd(0, EventfdFlags::CLOEXEC).unwrap()).unwrap();
        for bell in [&ours, &theirs, &ours.try_clone().unwrap()] {
            assert!(!bell.drain());
            (0..5).for_each(|_| bell.ring());
            assert!(bell.drain() && !bell.drain());
            rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            bell.ring(); // the count overflows, but the doorbell stays readable
            assert!(bell.drain());
        }
    }
}
