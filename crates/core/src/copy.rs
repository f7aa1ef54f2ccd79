//! Copy of packets between memory regions.

use crate::{Packet, PacketOwnership, Pool, Queue, RegionId};

/// Copies those packets of a run that are not of `region` into memory of `exit`, which is of that
/// region. Returns the number of packets from the front that are of it then; the rest found no free
/// frame there.
#[cold]
pub(crate) fn copy_into(
    exit: &mut dyn Queue,
    region: RegionId,
    run: &mut [Packet],
    pool: &mut Pool,
) -> usize {
    for (index, packet) in run.iter_mut().enumerate() {
        if packet.region() == region {
            continue;
        }
        // A packet that no port can send, or that is longer than a frame there, is replaced by an
        // empty one, which `transmit` refuses.
        let length = if packet.has_lost_checksum() { 0 } else { packet.len() };
        let copy = exit.alloc_packet(length, pool).or_else(|| exit.alloc_packet(0, pool));
        let Some(mut copy) = copy else { return index };
        copy.copy_from(packet);
        pool.release(packet);
        *packet = copy;
    }
    run.len()
}

#[cfg(test)]
mod tests;
