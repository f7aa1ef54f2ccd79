//! A bounded run of packets.

use crate::{Packet, Pool};

/// Packets on their way from a queue to the application. It never grows beyond its capacity.
#[derive(Debug)]
pub struct Burst {
    packets: Vec<Packet>,
    capacity: usize,
}

impl Burst {
    /// An empty burst for at most `capacity` packets.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { packets: Vec::with_capacity(capacity), capacity }
    }

    /// How many more packets fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.packets.len()
    }

    /// How many packets there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is no packet.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Gives the packet back when the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.packets.len() >= self.capacity {
            return Err(packet);
        }
        self.packets.push(packet);
        Ok(())
    }

    /// The packets.
    #[inline]
    #[must_use]
    pub fn packets(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// The packet appended last.
    #[inline]
    #[must_use]
    pub fn last(&mut self) -> Option<&mut Packet> {
        self.packets.last_mut()
    }

    /// Empties the burst; frames that nobody took go back to the pool.
    #[inline]
    pub fn clear(&mut self, pool: &mut Pool) {
        for packet in &mut self.packets {
            pool.release(packet);
        }
        self.packets.clear();
    }
}
