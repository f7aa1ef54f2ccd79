//! Doorbell of a lane: the wake-up for packets in its rings.
//!
//! As in Dekker's algorithm the sleeper sets its state and then polls its rings, and a sender
//! publishes and then tests the state. In the single order of the two fences one of them sees the
//! other. So a sender rings only for a sleeper, and once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use fastlane_table::Doorbell;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

/// Doorbell of one lane, or of one end of a ring: any number of senders, one sleeper. Its state
/// saves the system call for a lane that is awake.
#[derive(Debug)]
#[repr(align(128))]
pub struct LaneDoorbell {
    state: AtomicU32,
    event: Doorbell,
}

impl LaneDoorbell {
    /// Creates the doorbell of a lane that is awake.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { state: AtomicU32::new(AWAKE), event: Doorbell::create()? })
    }

    /// Announces that the sleeper is about to sleep. It must poll its rings between this call and
    /// the sleep.
    pub fn arm(&self) {
        self.state.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the sleeper is awake. This is one load if it was awake before.
    #[inline]
    pub fn disarm(&self) {
        if self.state.load(Ordering::Relaxed) != AWAKE {
            self.wake_up();
        }
    }

    #[cold]
    fn wake_up(&self) {
        if self.state.swap(AWAKE, Ordering::Relaxed) == RUNG {
            // A sender may write after this read: then the next sleep ends at once, without harm.
            let _ = self.event.drain();
        }
    }

    /// Wakes the sleeper if it sleeps, after a sender has published packets for it.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        self.wake();
    }

    /// Does what [`ring`](Self::ring) does, behind a sequentially consistent fence of the caller
    /// that follows the publication. So a sender to many sleepers needs one fence.
    #[inline]
    pub fn wake(&self) {
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.ring_now();
        }
    }

    #[cold]
    fn ring_now(&self) {
        let rung = self.state.compare_exchange(ASLEEP, RUNG, Ordering::Relaxed, Ordering::Relaxed);
        if rung.is_ok() {
            self.event.ring();
        }
    }

    /// Returns the descriptor that becomes readable when a sender rings.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(doorbell: &LaneDoorbell) -> bool {
        let event = doorbell.event();
        let mut events = [PollFd::new(&event, PollFlags::IN)];
        poll(&mut events, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn only_a_sleeper_is_woken_and_once() {
        let doorbell = LaneDoorbell::new().unwrap();
        doorbell.ring();
        assert!(!is_readable(&doorbell), "awake");
        doorbell.arm();
        assert!(!is_readable(&doorbell), "no sender rang");
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
