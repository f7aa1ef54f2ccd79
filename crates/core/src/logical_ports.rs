//! Ports that other ports carry: the seam of `fastlane_local::vlan`.

use crate::Packet;

/// Logical ports of a lane, such as the VLANs of a port. A logical port has no queues: its packets
/// arrive and leave by the queues of its carrier, in another form.
///
/// Like a [`Queue`](crate::Queue) it neither allocates, locks, waits nor fails after start. Ports
/// are named by their numbers.
pub trait LogicalPorts: Send {
    /// Turns those packets of a burst that belong to a logical port into packets of that port.
    /// All have arrived at `carrier`. Steering claims none of the turned ones. Returns true if
    /// there is one.
    fn decapsulate(&mut self, carrier: usize, packets: &mut [Packet]) -> bool;

    /// Turns the packets of a run, which leave by a logical port, into packets of its carrier.
    /// Returns the number of such packets from the front. The rest has no room for it, and stays
    /// as it was.
    fn encapsulate(&mut self, port: usize, run: &mut [Packet]) -> usize;

    /// Returns the port that carries a logical port, or `None` for all other ports.
    fn carrier(&self, port: usize) -> Option<usize>;

    /// Returns true if packets of a logical port enter Linux by the path of its carrier.
    fn shares_kernel_path(&self, port: usize) -> bool;

    /// Returns the number of bytes by which a packet of a logical port is longer at its carrier.
    fn overhead(&self, port: usize) -> usize;
}
