//! A port as one lane sees it.

use fastlane_table::counters::PortCounters;

use crate::Queue;

/// The lane's part of a port: its queues, the port's way into Linux, its counters.
///
/// A lane has an entry for every configured port, so that a [`PortId`](crate::PortId) means the
/// same in all lanes; one without queues cannot be forwarded to.
pub struct Port {
    /// The queues of this port that this lane owns.
    pub queues: Vec<Box<dyn Queue>>,
    /// Where packets labelled `Kernel` go.
    pub kernel: Option<KernelPath>,
    /// What is fast, where the device or the kernel has not sorted that out before. Packets that it
    /// does not claim are Linux's, and the application never sees them. `None`: all are fast.
    pub filter: Option<Box<dyn Filter>>,
    /// Written by this lane only.
    pub counters: PortCounters,
}

/// Steering in software, for devices that Linux does not have.
pub trait Filter: Send {
    /// Whether a frame is fast.
    fn claims(&mut self, frame: &[u8]) -> bool;

    /// Whether it claims every frame, so that none is looked at or counted.
    fn claims_all(&self) -> bool {
        false
    }
}

/// The way between a port and Linux.
pub struct KernelPath {
    /// Its `transmit` gives packets to Linux.
    pub queue: Box<dyn Queue>,
    /// Whether Linux also sends through it: true for a port whose device Linux does not have.
    pub receives: bool,
}
