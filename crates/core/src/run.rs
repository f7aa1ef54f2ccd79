//! Runs that leave a lane for good.

use std::ops::{Deref, DerefMut};

use crate::{Packet, PacketOwnership};

/// Burst that is one run, for [`Queue::transmit_run`](crate::Queue::transmit_run).
///
/// A queue empties each packet that it takes, or [forgets](Self::forget_first) all of them, which
/// saves a store for each.
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

    /// Forgets the first `count` packets. If `count` is all of them, the run has no packets
    /// afterwards; otherwise the first `count` are empty and the others stay. The frames belong to
    /// whoever has noted their tokens, and are lost if nobody has.
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
