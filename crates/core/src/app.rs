//! What an author writes.

use crate::{Packet, Turn, Verdict};

/// A network application: one instance for each lane, which nobody else touches.
///
/// Any `FnMut(&mut Packet) -> Verdict` is an application too.
pub trait App {
    /// Labels the packets of a burst. They come from one queue; they are never kept.
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn);

    /// The shard of a packet that arrives at a port with `lane-by: application`: packets of one
    /// shard are all shown to the same lane's instance. It is called where the packet arrives, and
    /// may depend on nothing but the packet and what tables say, read in this `turn`.
    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        let _ = (packet, turn);
        0
    }

    /// Called once a turn, also when nothing arrived: for timers and packets of one's own.
    fn turn(&mut self, turn: &mut Turn) {
        let _ = turn;
    }
}

impl<F: FnMut(&mut Packet) -> Verdict> App for F {
    #[inline]
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let verdict = self(packet);
            packet.set_verdict(verdict);
        }
    }
}
