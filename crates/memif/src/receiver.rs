//! The receiving end of a ring: copies frames out of the shared memory.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use fastlane_core::{Burst, Pool, PortId, Statistics};

use crate::layout::Buffers;
use crate::region::Buffer;
use crate::ring::{Descriptor, MAX_SEGMENTS, Ring, Violation};

/// Number of slots whose descriptors are read, and whose frames are prefetched, at once.
const AHEAD: usize = 8;

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
    skipping: Cell<bool>,
    /// True if slots that the peer fills from now on are ignored.
    frozen: bool,
}

/// Filled slot, as its descriptor says. The descriptor is read once: checks and use refer to the
/// same values.
#[derive(Clone, Copy)]
struct Filled<'r> {
    /// The buffer, unless it lies outside of the shared memory.
    buffer: Option<Buffer<'r>>,
    length: usize,
    /// True if the frame continues in the next slot.
    more: bool,
}

/// Result of receiving one frame.
enum RxOutcome {
    /// The number of slots of a frame that became a packet, or was dropped and counted.
    Done(u16),
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
        Self { ring, buffers, next: 0, available: 0, skipping: Cell::new(false), frozen: false }
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
        let (mut done, mut frames, mut waits) = (0, 0, false);
        // Lost frames count too: otherwise a peer that sends only invalid ones could keep the lane
        // in this loop without end.
        while done < arrived && frames < room && !waits {
            let wanted = usize::from(arrived - done).min(room - frames);
            let (filled, count) = self.look_ahead(done, wanted);
            for filled in &filled[..count] {
                frames += 1;
                let is_chain = filled.more || self.skipping.get();
                let outcome = if is_chain {
                    self.receive_chain(done, burst, pool, port, statistics)
                } else {
                    receive_one(filled, burst, pool, port, statistics)
                };
                match outcome {
                    RxOutcome::Done(slots) => done += slots,
                    RxOutcome::Wait => waits = true,
                }
                if is_chain || waits {
                    break; // the next frame is not in the next slot
                }
            }
        }
        self.release_slots(done);
        if waits && !self.frozen {
            self.available = 0; // a frame may be incomplete: read the index again next time
        }
        Ok(())
    }

    /// Reads the descriptors of up to `wanted` slots, `done` slots ahead, and prefetches their
    /// frames. Returns their number as well.
    // Not inlined: the loop over the packets needs the registers.
    #[inline(never)]
    fn look_ahead(&self, done: u16, wanted: usize) -> ([Filled<'_>; AHEAD], usize) {
        let count = wanted.min(AHEAD);
        let mut all = [Filled { buffer: None, length: 0, more: false }; AHEAD];
        let first = self.next.wrapping_add(done);
        for (number, filled) in all[..count].iter_mut().enumerate() {
            let Descriptor { span, more } =
                self.ring.read_descriptor(first.wrapping_add(number as u16));
            let buffer = self.ring.regions().buffer(span);
            if let Some(buffer) = buffer {
                buffer.prefetch();
            }
            *filled = Filled { buffer, length: span.length as usize, more };
        }
        (all, count)
    }

    /// Receives a frame in several buffers; `done` of the slots that have arrived precede it.
    ///
    /// The peer decides how long a chain is. A chain longer than [`MAX_SEGMENTS`], or than the
    /// ring, counts once as `device_invalid` and is skipped to its end, however long the peer
    /// continues it.
    #[cold]
    fn receive_chain(
        &self,
        done: u16,
        burst: &mut Burst,
        pool: &mut Pool,
        port: PortId,
        statistics: &mut Statistics,
    ) -> RxOutcome {
        let mut chain = [Descriptor::default(); MAX_SEGMENTS];
        let (mut slots, mut length) = (0, 0usize);
        for entry in &mut chain[..MAX_SEGMENTS.min(usize::from(self.available - done))] {
            *entry = self.ring.read_descriptor(self.next.wrapping_add(done + slots));
            length += entry.span.length as usize;
            slots += 1;
            if !entry.more {
                break;
            }
        }
        let chain = &chain[..usize::from(slots)];
        let ends = chain.last().is_some_and(|last| !last.more);
        if self.skipping.replace(!ends) {
            return RxOutcome::Done(slots);
        }
        if !ends {
            if chain.len() < MAX_SEGMENTS.min(self.ring.size().into()) && !self.frozen {
                self.skipping.set(false);
                return RxOutcome::Wait;
            }
            statistics.device_invalid += 1;
            return RxOutcome::Done(slots);
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
        } else if let Err(mut packet) = burst.push(packet) {
            pool.release(&mut packet); // unreachable: there was room
        }
        RxOutcome::Done(slots)
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

/// Receives a frame in one buffer. A buffer outside of the shared memory, or an empty one, is
/// dropped and counted as `device_invalid`; the ring stays usable.
#[inline]
fn receive_one(
    filled: &Filled<'_>,
    burst: &mut Burst,
    pool: &mut Pool,
    port: PortId,
    statistics: &mut Statistics,
) -> RxOutcome {
    let Some(buffer) = filled.buffer.filter(|_| filled.length > 0) else {
        return drop_invalid(filled.length, pool, statistics);
    };
    match burst.alloc_packet(filled.length, port, pool) {
        Some(packet) => {
            buffer.read(packet.bytes_mut()); // as long as the packet
            RxOutcome::Done(1)
        }
        None => no_frame(filled.length, 1, pool, statistics),
    }
}

/// Counts a frame of `length` octets that cannot be read. If it is too long as well, it counts as
/// that.
#[cold]
fn drop_invalid(length: usize, pool: &mut Pool, statistics: &mut Statistics) -> RxOutcome {
    if length > pool.room() {
        statistics.receive_length += 1;
    } else {
        statistics.device_invalid += 1;
    }
    RxOutcome::Done(1)
}

/// Decides about a frame of `length` octets for which no packet could be allocated: it is too long,
/// or the pool has no free frame.
#[cold]
fn no_frame(length: usize, slots: u16, pool: &mut Pool, statistics: &mut Statistics) -> RxOutcome {
    if length > pool.room() {
        statistics.receive_length += 1;
        return RxOutcome::Done(slots);
    }
    // The frame stays in the ring until a pool frame is free.
    statistics.device_no_frames += 1;
    RxOutcome::Wait
}
