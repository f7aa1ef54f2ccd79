//! Runs that leave a lane for good.

use std::ops::{Deref, DerefMut};

use crate::{Packet, PacketOwnership};

/// Packets of a burst for [`Queue::transmit_run`](crate::Queue::transmit_run).
///
/// Nobody sees a packet again once it was [forgotten](Self::forget_first), so the queue need not
/// empty it, which saves a store for each.
#[derive(Debug)]
pub struct Run<'a> {
    packets: &'a mut Vec<Packet>,
}

impl<'a> Run<'a> {
    /// Creates a run of all packets of a burst.
    #[inline(always)]
    pub(crate) fn new(packets: &'a mut Vec<Packet>) -> Self {
        Self { packets }
    }

    /// Forgets the first `count` packets. The run is empty afterwards if that are all; otherwise
    /// they stay as empty packets. Their frames belong to whoever has noted their tokens, and are
    /// lost if nobody has.
    #[inline(always)]
    pub fn forget_first(&mut self, count: usize) {
        if count >= self.packets.len() {
            self.packets.clear();
        } else {
            self.empty_first(count);
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_first(&mut self, count: usize) {
        for packet in &mut self.packets[..count] {
            let _ = packet.take();
        }
    }
}

impl Deref for Run<'_> {
    type Target = [Packet];

    #[inline(always)]
    fn deref(&self) -> &[Packet] {
        self.packets
    }
}

impl DerefMut for Run<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Packet] {
        self.packets
    }
}
