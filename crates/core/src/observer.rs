//! Observers of the packets of a lane: the seam of `fastlane-capture`.

use crate::{Packet, PortId};

/// Observer of the packets of one lane, such as a capture. One that is not active costs one call a
/// turn.
///
/// The lane calls it on its own thread, so it must neither allocate, lock nor wait.
pub trait PacketObserver: Send {
    /// Begins a turn. Returns true if the observer is active in this turn; only then the lane calls
    /// the other methods.
    fn begin_turn(&mut self) -> bool;

    /// Observes packets that have arrived at a port, before the application sees them.
    fn received(&mut self, port: PortId, packets: &[Packet]);

    /// Observes the verdicts of the packets received last. The application may have reordered or
    /// replaced them.
    fn labelled(&mut self, packets: &[Packet]);

    /// Observes a run that is about to leave by a port.
    fn sending(&mut self, port: PortId, packets: &[Packet]);

    /// Observes the result of sending that run.
    fn sent(&mut self, departure: Departure);
}

/// Result of sending a run of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// True if this lane or another has a queue of the port.
    pub has_queue: bool,
    /// Number of packets, from the front, in memory that the port can transmit from.
    pub fitting: usize,
    /// Number of these that the port took.
    pub taken: usize,
    /// Number of these that will be sent.
    pub packets: usize,
}

impl Departure {
    /// Result for a port of which no lane has a queue.
    pub const NO_QUEUE: Self = Self { has_queue: false, fitting: 0, taken: 0, packets: 0 };
}
