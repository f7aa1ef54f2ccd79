//! Copy of packets between memory regions.

use crate::lane_ports::QueueSlot;
use crate::{Packet, PacketOwnership, Pool, Queue, RegionId};

/// Makes the packets of a run transmittable by `exit`, if necessary by copying them into its
/// memory. Returns the number of such packets from the front; the rest found no free frame there.
#[inline]
pub(crate) fn make_transmittable(
    exit: &mut QueueSlot,
    run: &mut [Packet],
    pool: &mut Pool,
) -> usize {
    let Some(region) = exit.region else { return run.len() };
    // The packets of a run came from one queue, so they are of one region. The exception is an
    // application that made packets in this turn and swapped them with others.
    let differs = run.first().is_some_and(|first| first.region() != region);
    if differs || pool.is_mixed() {
        return copy(&mut *exit.queue, region, run, pool);
    }
    run.len()
}

fn copy(exit: &mut dyn Queue, region: RegionId, run: &mut [Packet], pool: &mut Pool) -> usize {
    for (index, packet) in run.iter_mut().enumerate() {
        if packet.region() == region {
            continue;
        }
        // A packet that no port can send is replaced by an empty one, which `transmit` refuses.
        let length = if packet.has_lost_checksum() { 0 } else { packet.len() };
        let Some(mut copy) = exit.alloc_packet(length, pool) else { return index };
        copy.copy_from(packet);
        pool.release(packet);
        *packet = copy;
    }
    run.len()
}

#[cfg(test)]
mod tests;
