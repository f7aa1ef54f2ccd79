//! Ports: the part of a port that one lane has.

use fastlane_table::counters::PortCounters;

use crate::packet::PacketOwnership;
use crate::{Packet, Queue};

/// Part of a port that one lane has: queues, the path into Linux and counters.
///
/// A lane has an entry for every configured port, so that a [`PortId`](crate::PortId) means the
/// same in all lanes. A port without queues cannot be forwarded to.
///
/// # Examples
/// ```
/// use fastlane_core::{Port, PortId};
/// use fastlane_local::memory::Memory;
/// use fastlane_table::counters::Counters;
///
/// let counters = Counters::create(1, 1)?; // one lane, one port
/// let port = Port {
///     queues: vec![Box::new(Memory::new(PortId(0), 64))],
///     kernel: None, // packets labelled `Kernel` are dropped and counted
///     filter: None, // the application sees all packets
///     counters: counters.port(0, 0),
/// };
/// assert_eq!(port.queues.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Port {
    /// Queues of this port that this lane owns.
    pub queues: Vec<Box<dyn Queue>>,
    /// Path into Linux, for packets labelled `Kernel`.
    pub kernel: Option<KernelPath>,
    /// Steering, if the device or the kernel has not done it. Packets that it does not claim go to
    /// Linux, and the application never sees them. `None` claims all.
    pub filter: Option<Box<dyn Filter>>,
    /// Counters, which only this lane writes.
    pub counters: PortCounters,
}

/// Steering in software, for devices that Linux does not own.
pub trait Filter: Send {
    /// Begins a burst. A filter that takes newer rules does so here, once for all its frames.
    fn begin_burst(&mut self) {}

    /// Returns true if steering claims a frame.
    fn claims(&mut self, frame: &[u8]) -> bool;

    /// Returns true if packets that the device has marked are claimed: its rules are those of this
    /// filter.
    fn trusts_marks(&self) -> bool {
        true
    }

    /// Marks the packets of a burst that are claimed, and returns the number of marked ones. A
    /// packet that the device has marked is not examined, unless its marks are not trusted. The
    /// lane calls this, so that a burst costs one dynamic call; implement the other methods
    /// instead.
    fn claim_burst(&mut self, packets: &mut [Packet]) -> u64 {
        self.begin_burst();
        let trusts_marks = self.trusts_marks();
        let mut claimed = 0;
        for packet in packets {
            if (trusts_marks && packet.is_claimed()) || self.claims(packet.bytes()) {
                packet.set_claimed();
                claimed += 1;
            } else {
                packet.set_unclaimed();
            }
        }
        claimed
    }

    /// Returns true if every frame is claimed, so that none is examined or counted.
    fn claims_all(&self) -> bool {
        false
    }
}

/// Path between a port and Linux.
pub struct KernelPath {
    /// Queue whose `transmit` gives packets to Linux.
    pub queue: Box<dyn Queue>,
    /// True if Linux also sends through it, as for a port whose device Linux does not own.
    pub receives: bool,
}
