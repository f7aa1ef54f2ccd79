//! What wakes a sleeper in another process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;

/// An eventfd (eventfd(2)) that never blocks: readable from the time that somebody rings to the
/// time that somebody drains it.
///
/// Whoever was given the descriptor can ring, drain, and make it block again for everyone who has
/// it: it is for processes that trust each other so far.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new one, silent.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn create() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// One that another process has made.
    ///
    /// # Errors
    /// When it cannot be kept from blocking.
    pub fn attach(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Self(descriptor))
    }

    /// The same bell, by another descriptor.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Makes it readable: one system call.
    pub fn ring(&self) {
        // It fails only when nobody has drained for 2^64 times: then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it silent: one system call. True when it had been rung.
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
            bell.ring(); // no room to count, but readable
            assert!(bell.drain());
        }
    }
}
