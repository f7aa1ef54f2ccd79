//! Lane rings: the interface by which two lanes pass packets.

use std::os::fd::BorrowedFd;

use fastlane_core::{Burst, Packet, Pool, PortId, Sent};

/// One lane's end of a pair of rings to and from another lane. Packets keep their port and verdict.
/// Like a [`Queue`](fastlane_core::Queue), it neither allocates, locks nor fails after it was
/// created.
pub trait LaneRing: Send {
    /// Appends packets that the other lane has passed, at most [`Burst::room`].
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool);

    /// Takes packets from the front of the slice, as many as there is space for. Packets that no
    /// frame of the other lane can hold are taken and released. The other lane need not see the
    /// packets before [`publish`](Self::publish).
    fn pass(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent;

    /// Publishes the passed packets. Returns true if there are any since the last call: then
    /// [`wake`](Self::wake) must follow, behind a fence.
    fn publish(&mut self) -> bool;

    /// Wakes the other lane if it sleeps and packets were published for it. A sequentially
    /// consistent fence must be between the publication and this; without it the other lane may
    /// sleep on.
    fn wake(&mut self);

    /// Takes back the frames that the other lane has read. Returns true if the lane must not sleep
    /// before more frames return.
    fn reclaim(&mut self, pool: &mut Pool) -> bool;

    /// Announces that the lane is about to sleep and must be woken. Returns true if it must not
    /// sleep.
    fn arm(&mut self) -> bool;

    /// Returns the descriptor that becomes readable when the other lane has passed packets. All
    /// rings of a lane have the same.
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;

    /// Marks the last packet that the other lane has passed so far.
    fn mark(&mut self);

    /// Returns true if all packets up to the mark were received.
    fn has_reached_mark(&self) -> bool;

    /// Returns true if the other lane has not read all packets that this one has passed.
    fn is_lending(&self) -> bool;

    /// Closes the end and takes all frames back. Calls `lost` with the port of each packet that was
    /// not read.
    fn close(&mut self, pool: &mut Pool, lost: &mut dyn FnMut(PortId));
}
