//! Runs: neighbours in a burst that leave together, and the memory that they leave from.

use super::QueueSlot;
use crate::copy::copy_into;
use crate::{Packet, Pool, Verdict};

impl QueueSlot {
    /// Returns true if the queue cannot transmit some packets of a run from where they are.
    #[inline]
    pub(super) fn must_copy(&self, run: &[Packet], pool: &Pool) -> bool {
        let Some(region) = self.region else { return false };
        // The packets of a run came from one queue, so they are of one region. The exception is an
        // application that made packets in this turn and swapped them with others.
        run.first().is_some_and(|first| first.region() != region) || pool.is_mixed()
    }

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

/// Returns true if both packets belong to one run: same verdict, same port, same flags.
#[inline]
pub(crate) fn same_run(one: &Packet, other: &Packet) -> bool {
    one.run_key() == other.run_key()
}

/// Returns true if all packets belong to one run. It costs two instructions for each.
#[inline]
pub(super) fn is_one_run(packets: &[Packet]) -> bool {
    let [first, _, ..] = packets else { return true };
    let first = first.run_key();
    let is_same = |packet: &Packet| packet.run_key() == first;
    let mut rest = packets;
    while let Some((eight, behind)) = rest.split_first_chunk::<8>() {
        if !eight.iter().all(is_same) {
            return false;
        }
        rest = behind;
    }
    rest.iter().all(is_same)
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
