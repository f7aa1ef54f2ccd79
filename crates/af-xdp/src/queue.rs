//! A queue of a device, as a lane drives it.

use std::os::fd::{AsFd, BorrowedFd};

use fastlane_core::{Burst, Packet, Pool, Queue, Sent, Statistics};
use fastlane_steer::{Program, ProgramError};

use crate::QueueDescription;
use crate::active::Active;

/// One queue of a device with its four rings, owned by one lane.
///
/// A frame of the lane's pool costs no copy here: it is received into where it lies and sent from
/// there. In the copy modes the kernel copies it once each way. Packets of other memory are copied
/// into a frame of the pool.
///
/// A call with another pool than the one it was opened with does nothing.
#[derive(Debug)]
pub struct XskQueue {
    /// `None` once it is closed.
    active: Option<Active>,
    losses: Statistics,
}

impl XskQueue {
    pub(crate) fn new(active: Active) -> Self {
        Self { active: Some(active), losses: Statistics::default() }
    }

    /// What must be kept of an open queue for a successor to take it over: its description, and a
    /// duplicate of its socket. `None` once it is closed.
    #[must_use]
    pub fn kept(&self) -> Option<(QueueDescription, BorrowedFd<'_>)> {
        self.active.as_ref().map(|active| (active.description, active.socket.as_fd()))
    }

    /// Lends the first frames, then lets the steering program send frames here.
    pub(crate) fn start(
        &mut self,
        program: &mut Program,
        queue: u32,
        pool: &mut Pool,
    ) -> Result<(), ProgramError> {
        let Some(active) = self.with(pool) else { return Ok(()) };
        active.refill(pool);
        program.insert_socket(queue, active.socket.as_fd())
    }

    #[inline]
    fn with(&mut self, pool: &Pool) -> Option<&mut Active> {
        self.active.as_mut().filter(|active| active.lent.is_of(pool))
    }
}

impl Queue for XskQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        if let Some(active) = self.with(pool) {
            active.receive(burst, pool);
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.with(pool).map_or(Sent::default(), |active| active.transmit(packets, pool))
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.with(pool).is_some_and(|active| active.flush(pool))
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.active.as_ref().map(|active| active.socket.as_fd())
    }

    fn statistics(&mut self) -> Statistics {
        if let Some(active) = &mut self.active {
            self.losses = active.statistics();
        }
        self.losses
    }

    fn close(&mut self, pool: &mut Pool) {
        if self.with(pool).is_none() {
            return;
        }
        let Some(mut active) = self.active.take() else { return };
        active.drain(pool);
        active.give_up();
        self.losses = active.statistics();
        active.close(pool);
    }
}
