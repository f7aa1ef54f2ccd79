//! Copy of packets between memory regions.

use crate::{Packet, PacketOwnership, Pool, Queue, RegionId, TxMemory};

/// Makes the packets of a run transmittable by `exit`, if necessary by copying them into its
/// memory. Returns the number of such packets from the front; the rest found no free frame there.
#[inline]
pub(crate) fn make_transmittable(
    exit: &mut dyn Queue,
    run: &mut [Packet],
    pool: &mut Pool,
) -> usize {
    let region = match exit.tx_memory() {
        TxMemory::Any => return run.len(),
        TxMemory::Pool => pool.region(),
        TxMemory::Region(region) => region,
    };
    // The packets of a run came from one queue, so they are of one region. The exception is an
    // application that made packets in this turn and swapped them with others.
    let differs = run.first().is_some_and(|first| first.region() != region);
    if differs || pool.is_mixed() {
        return copy(exit, region, run, pool);
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
