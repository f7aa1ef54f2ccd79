//! How a lane that sleeps learns that a ring has something for it.
//!
//! As in Dekker's algorithm: the sleeper says that it sleeps and then looks at its rings; a sender
//! publishes and then looks whether the other sleeps. In the single order of the two fences one of
//! them sees the other. So a sender writes the descriptor only for a sleeper, and once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

/// One for each lane, or for each end of a ring: any number of senders, one sleeper.
#[derive(Debug)]
#[repr(align(128))]
pub struct Doorbell {
    state: AtomicU32,
    event: OwnedFd,
}

impl Doorbell {
    /// A doorbell of a lane that is awake.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU32::new(AWAKE), event })
    }

    /// The sleeper will sleep. It looks at its rings after this, and only then sleeps.
    pub fn arm(&self) {
        self.state.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake: one load when it was before.
    #[inline]
    pub fn disarm(&self) {
        if self.state.load(Ordering::Relaxed) != AWAKE {
            self.wake_up();
        }
    }

    #[cold]
    fn wake_up(&self) {
        if self.state.swap(AWAKE, Ordering::Relaxed) == RUNG {
            // Whoever rang may write only now: then the next sleep ends at once, no more.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }

    /// Wakes the sleeper if it sleeps: for who has published something that it shall see.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.ring_now();
        }
    }

    #[cold]
    fn ring_now(&self) {
        let rung = self.state.compare_exchange(ASLEEP, RUNG, Ordering::Relaxed, Ordering::Relaxed);
        if rung.is_ok() {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// What becomes readable when it is rung.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(doorbell: &Doorbell) -> bool {
        let event = doorbell.event();
        let mut events = [PollFd::new(&event, PollFlags::IN)];
        poll(&mut events, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn only_a_sleeper_is_woken_and_once() {
        let doorbell = Doorbell::new().unwrap();
        doorbell.ring();
        assert!(!is_readable(&doorbell), "awake");
        doorbell.arm();
        assert!(!is_readable(&doorbell), "nobody rang");
        doorbell.ring();
        doorbell.ring();
        assert!(is_readable(&doorbell));
        doorbell.disarm();
        assert!(!is_readable(&doorbell), "one reading is enough");
        doorbell.arm();
        doorbell.disarm();
        doorbell.ring();
        assert!(!is_readable(&doorbell), "awake again");
    }
}
