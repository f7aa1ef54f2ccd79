//! The receiving end of a ring: copies frames out of the shared memory.

use std::sync::atomic::Ordering;

use fastlane_core::{Burst, Packet, Pool, PortId, Statistics};

use crate::layout::Buffers;
use crate::ring::{Descriptor, MAX_SEGMENTS, Ring, Violation};

/// Number of slots ahead whose frames are prefetched.
const AHEAD: u16 = 4;

/// Receives frames from one ring into the pool.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Ring,
    /// Buffers that are offered in the ring; only a client has them.
    buffers: Option<Buffers>,
    /// Index of the next slot to be read.
    next: u16,
    /// Number of filled slots from `next` on, when the peer's index was last read.
    available: u16,
    /// True if the frame that continues in the next slot is already counted as lost.
    skipping: bool,
    /// True if slots that the peer fills from now on are ignored.
    frozen: bool,
}

/// Result of receiving one frame.
enum RxOutcome {
    /// A packet, and the number of its slots.
    Packet(Packet, u16),
    /// The number of slots of a frame that was dropped and counted.
    Lost(u16),
    /// The rest of the frame has not arrived, or the pool has no free frame.
    Wait,
}

impl Receiver {
    /// Creates the receiver. A client passes its buffers, and offers them; a server passes `None`.
    pub(crate) fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        ring.mask_interrupt(true);
        if let Some(buffers) = buffers {
            (0..ring.size()).for_each(|slot| {
                ring.write_descriptor(slot, buffers.empty_descriptor(slot, &ring))
            });
            ring.head().store(ring.size(), Ordering::Release);
        }
        Self { ring, buffers, next: 0, available: 0, skipping: false, frozen: false }
    }

    /// Returns the ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the number of filled slots. Reads the peer's index if fewer than `wanted` are known.
    ///
    /// # Errors
    /// Returns a violation if the index implies more filled slots than the ring has. A peer could
    /// make a lane read slots again and again by a jumping index; after one, no slot can be
    /// trusted.
    #[inline]
    pub(crate) fn arrived(&mut self, wanted: usize) -> Result<u16, Violation> {
        if usize::from(self.available) < wanted && !self.frozen {
            let filled = if self.buffers.is_some() { self.ring.tail() } else { self.ring.head() };
            self.available = filled.load(Ordering::Acquire).wrapping_sub(self.next);
            if self.available > self.ring.size() {
                self.available = 0;
                return Err(Violation(
                    "the ring index implies more filled slots than the ring has",
                ));
            }
        }
        Ok(self.available)
    }

    /// Reads the peer's index for the last time; slots that the peer fills from now on are ignored.
    pub(crate) fn freeze(&mut self) -> Result<(), Violation> {
        if !self.frozen {
            self.arrived(usize::MAX)?;
            self.frozen = true;
        }
        Ok(())
    }

    /// Appends the frames that have arrived to the burst.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        burst: &mut Burst,
        pool: &mut Pool,
        port: PortId,
        statistics: &mut Statistics,
    ) -> Result<(), Violation> {
        let room = burst.room();
        let arrived = self.arrived(room)?;
        if arrived == 0 {
            return Ok(());
        }
        for slot in 0..AHEAD.min(arrived) {
            self.prefetch(slot);
        }
        let (mut done, mut frames, mut waits) = (0, 0, false);
        // Lost frames count too: otherwise a peer that sends only invalid ones could keep the lane
        // in this loop without end.
        while done < arrived && frames < room {
            frames += 1;
            if done + AHEAD < arrived {
                self.prefetch(done + AHEAD);
            }
            let descriptor = self.ring.read_descriptor(self.next.wrapping_add(done));
            let outcome = if descriptor.more || self.skipping {
                self.receive_chain(done, arrived, pool, port, statistics)
            } else {
                self.receive_one(descriptor, pool, port, statistics)
            };
            match outcome {
                RxOutcome::Packet(packet, slots) => {
                    done += slots;
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // unreachable: there was room
                    }
                }
                RxOutcome::Lost(slots) => done += slots,
                RxOutcome::Wait => {
                    waits = true;
                    break;
                }
            }
        }
        self.release_slots(done);
        if waits && !self.frozen {
            self.available = 0; // a frame may be incomplete: read the index again next time
        }
        Ok(())
    }

    #[inline]
    fn prefetch(&self, distance: u16) {
        let descriptor = self.ring.read_descriptor(self.next.wrapping_add(distance));
        self.ring.regions().prefetch(descriptor.span);
    }

    /// Receives a frame in one buffer. A buffer outside of the shared memory, or an empty one, is
    /// dropped and counted as `device_invalid`; the ring stays usable.
    #[inline]
    fn receive_one(
        &self,
        descriptor: Descriptor,
        pool: &mut Pool,
        port: PortId,
        statistics: &mut Statistics,
    ) -> RxOutcome {
        let length = descriptor.span.length as usize;
        let Some(mut packet) = pool.alloc_packet(length, port) else {
            return no_frame(length, 1, pool, statistics);
        };
        if length == 0 || !self.ring.regions().read(descriptor.span, packet.bytes_mut()) {
            pool.release(&mut packet);
            statistics.device_invalid += 1;
            return RxOutcome::Lost(1);
        }
        RxOutcome::Packet(packet, 1)
    }

    /// Receives a frame in several buffers; `done` slots of `arrived` precede it.
    ///
    /// The peer decides how long a chain is. A chain longer than [`MAX_SEGMENTS`], or than the
    /// ring, counts once as `device_invalid` and is skipped to its end, however long the peer
    /// continues it.
    #[cold]
    fn receive_chain(
        &mut self,
        done: u16,
        arrived: u16,
        pool: &mut Pool,
        port: PortId,
        statistics: &mut Statistics,
    ) -> RxOutcome {
        let mut chain = [Descriptor::default(); MAX_SEGMENTS];
        let (mut slots, mut length) = (0, 0usize);
        for entry in &mut chain[..MAX_SEGMENTS.min(usize::from(arrived - done))] {
            *entry = self.ring.read_descriptor(self.next.wrapping_add(done + slots));
            length += entry.span.length as usize;
            slots += 1;
            if !entry.more {
                break;
            }
        }
        let chain = &chain[..usize::from(slots)];
        let ends = chain.last().is_some_and(|last| !last.more);
        if std::mem::replace(&mut self.skipping, false) {
            self.skipping = !ends;
            return RxOutcome::Lost(slots);
        }
        if !ends {
            if chain.len() < MAX_SEGMENTS.min(self.ring.size().into()) && !self.frozen {
                return RxOutcome::Wait;
            }
            statistics.device_invalid += 1;
            self.skipping = true;
            return RxOutcome::Lost(slots);
        }
        let Some(mut packet) = pool.alloc_packet(length, port) else {
            return no_frame(length, slots, pool, statistics);
        };
        let mut rest = packet.bytes_mut();
        let whole = length > 0
            && chain.iter().all(|descriptor| {
                let (part, behind) =
                    std::mem::take(&mut rest).split_at_mut(descriptor.span.length as usize);
                rest = behind;
                self.ring.regions().read(descriptor.span, part)
            });
        if !whole {
            pool.release(&mut packet);
            statistics.device_invalid += 1;
            return RxOutcome::Lost(slots);
        }
        RxOutcome::Packet(packet, slots)
    }

    /// Returns the buffers of `slots` slots to the sender.
    #[inline]
    fn release_slots(&mut self, slots: u16) {
        let first = self.next;
        self.next = first.wrapping_add(slots);
        self.available -= slots;
        let Some(buffers) = &self.buffers else {
            return self.ring.tail().store(self.next, Ordering::Release);
        };
        for number in 0..slots {
            let slot = first.wrapping_add(number);
            self.ring.write_descriptor(slot, buffers.empty_descriptor(slot, &self.ring));
        }
        let head = self.next.wrapping_add(self.ring.size());
        self.ring.head().store(head, Ordering::Release);
    }
}

/// Decides about a frame of `length` octets for which no packet could be allocated: it is too long,
/// or the pool has no free frame.
#[cold]
fn no_frame(length: usize, slots: u16, pool: &mut Pool, statistics: &mut Statistics) -> RxOutcome {
    if length > pool.room() {
        statistics.receive_length += 1;
        return RxOutcome::Lost(slots);
    }
    // The frame stays in the ring until a pool frame is free.
    statistics.device_no_frames += 1;
    RxOutcome::Wait
}
