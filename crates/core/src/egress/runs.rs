//! Order of the runs of a burst, and runs that leave from memory that they are not in.

use super::QueueSlot;
use crate::copy::copy_into;
use crate::{Packet, Pool, Verdict};

impl QueueSlot {
    /// Makes the packets of a run transmittable by the queue, if necessary by copying them into its
    /// memory. Returns the number of such packets from the front; the rest found no free frame
    /// there.
    pub(super) fn make_transmittable(&mut self, run: &mut [Packet], pool: &mut Pool) -> usize {
        match self.region {
            Some(region) if self.must_copy(run, pool) => {
                copy_into(&mut *self.queue, region, run, pool)
            }
            _ => run.len(),
        }
    }
}

/// Moves dropped packets behind all others, which stay in order. Between packets of one exit each
/// of them would end a run, and a run costs as much as several packets.
#[inline(never)]
pub(super) fn move_drops_last(packets: &mut [Packet]) {
    let mut kept = 0;
    for at in 0..packets.len() {
        if packets[at].verdict().verdict() != Some(Verdict::Drop) {
            if at != kept {
                packets.swap(kept, at);
            }
            kept += 1;
        }
    }
}
