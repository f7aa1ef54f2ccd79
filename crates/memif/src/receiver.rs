//! The end of a ring that takes frames out.

use std::sync::atomic::Ordering;

use fastlane_core::{Burst, Packet, Pool, PortId, Statistics};

use crate::ring::{Descriptor, Ring};
use crate::transmitter::{Buffers, MOST_SEGMENTS, Violation};

/// How many slots ahead the octets of a frame are asked for.
const AHEAD: u16 = 4;

/// Takes frames out of one ring and copies them into the pool.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Ring,
    /// The client's: where the empty buffers are that it offers.
    buffers: Option<Buffers>,
    /// The first slot that was not taken out.
    next: u16,
    /// Filled slots from there on that we know of.
    known: u16,
    /// The frame that goes on in the next slot is lost already.
    skipping: bool,
    /// Nothing more than what is known is to be taken.
    last: bool,
}

/// What came of a frame.
enum Outcome {
    /// It takes so many slots.
    Packet(Packet, u16),
    /// So many slots were of no use.
    Lost(u16),
    /// The rest of it has not arrived, or there is no frame to put it into.
    Wait,
}

impl Receiver {
    /// Of a server without, of a client with its buffers, which it offers.
    pub(crate) fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        ring.mask(true);
        if let Some(buffers) = buffers {
            (0..ring.size()).for_each(|slot| ring.describe(slot, buffers.empty(slot, &ring)));
            ring.head().store(ring.size(), Ordering::Release);
        }
        Self { ring, buffers, next: 0, known: 0, skipping: false, last: false }
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Filled slots. Looks again when fewer than `wanted` are known.
    #[inline]
    pub(crate) fn arrived(&mut self, wanted: usize) -> Result<u16, Violation> {
        if usize::from(self.known) < wanted && !self.last {
            let filled = if self.buffers.is_some() { self.ring.tail() } else { self.ring.head() };
            self.known = filled.load(Ordering::Acquire).wrapping_sub(self.next);
            if self.known > self.ring.size() {
                self.known = 0;
                return Err(Violation("more slots are filled than the ring has"));
            }
        }
        Ok(self.known)
    }

    /// Looks for the last time: nothing that arrives from now on is taken.
    pub(crate) fn look_last(&mut self) -> Result<(), Violation> {
        if !self.last {
            self.arrived(usize::MAX)?;
            self.last = true;
        }
        Ok(())
    }

    /// Appends what has arrived.
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
        // Those that are lost count too, so that a peer cannot keep us here with nothing.
        while done < arrived && frames < room {
            frames += 1;
            if done + AHEAD < arrived {
                self.prefetch(done + AHEAD);
            }
            let descriptor = self.ring.descriptor(self.next.wrapping_add(done));
            let outcome = if descriptor.more || self.skipping {
                self.receive_chain(done, arrived, pool, port, statistics)
            } else {
                self.receive_one(descriptor, pool, port, statistics)
            };
            match outcome {
                Outcome::Packet(packet, slots) => {
                    done += slots;
                    if let Err(mut packet) = burst.push(packet) {
                        pool.release(&mut packet); // not reached: there was room
                    }
                }
                Outcome::Lost(slots) => done += slots,
                Outcome::Wait => {
                    waits = true;
                    break;
                }
            }
        }
        self.give_back(done);
        if waits && !self.last {
            self.known = 0; // there may be a part of a frame: look again next time
        }
        Ok(())
    }

    #[inline]
    fn prefetch(&self, distance: u16) {
        let descriptor = self.ring.descriptor(self.next.wrapping_add(distance));
        self.ring.regions().prefetch(descriptor.span);
    }

    /// A frame in one buffer.
    #[inline]
    fn receive_one(
        &self,
        descriptor: Descriptor,
        pool: &mut Pool,
        port: PortId,
        statistics: &mut Statistics,
    ) -> Outcome {
        let length = descriptor.span.length as usize;
        let Some(mut packet) = pool.alloc_packet(length, port) else {
            return without_frame(length, 1, pool, statistics);
        };
        if length == 0 || !self.ring.regions().read(descriptor.span, packet.bytes_mut()) {
            pool.release(&mut packet);
            statistics.device_invalid += 1;
            return Outcome::Lost(1);
        }
        Outcome::Packet(packet, 1)
    }

    /// A frame in several buffers, made one; `done` slots of `arrived` are before it.
    #[cold]
    fn receive_chain(
        &mut self,
        done: u16,
        arrived: u16,
        pool: &mut Pool,
        port: PortId,
        statistics: &mut Statistics,
    ) -> Outcome {
        let mut chain = [Descriptor::default(); MOST_SEGMENTS];
        let (mut slots, mut length) = (0, 0usize);
        for place in &mut chain[..MOST_SEGMENTS.min(usize::from(arrived - done))] {
            *place = self.ring.descriptor(self.next.wrapping_add(done + slots));
            length += place.span.length as usize;
            slots += 1;
            if !place.more {
                break;
            }
        }
        let chain = &chain[..usize::from(slots)];
        let ends = chain.last().is_some_and(|last| !last.more);
        if std::mem::replace(&mut self.skipping, false) {
            self.skipping = !ends;
            return Outcome::Lost(slots);
        }
        if !ends {
            if chain.len() < MOST_SEGMENTS.min(self.ring.size().into()) && !self.last {
                return Outcome::Wait;
            }
            statistics.device_invalid += 1;
            self.skipping = true;
            return Outcome::Lost(slots);
        }
        let Some(mut packet) = pool.alloc_packet(length, port) else {
            return without_frame(length, slots, pool, statistics);
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
            return Outcome::Lost(slots);
        }
        Outcome::Packet(packet, slots)
    }

    /// Returns the buffers of so many slots to who sends.
    #[inline]
    fn give_back(&mut self, slots: u16) {
        let first = self.next;
        self.next = first.wrapping_add(slots);
        self.known -= slots;
        let Some(buffers) = &self.buffers else {
            return self.ring.tail().store(self.next, Ordering::Release);
        };
        for number in 0..slots {
            let slot = first.wrapping_add(number);
            self.ring.describe(slot, buffers.empty(slot, &self.ring));
        }
        let head = self.next.wrapping_add(self.ring.size());
        self.ring.head().store(head, Ordering::Release);
    }
}

/// Why there is no frame for so many octets: they do not fit into one, or none is free.
#[cold]
fn without_frame(
    length: usize,
    slots: u16,
    pool: &mut Pool,
    statistics: &mut Statistics,
) -> Outcome {
    if length > pool.room() {
        statistics.receive_length += 1;
        return Outcome::Lost(slots);
    }
    // It stays in the ring until there is one.
    statistics.device_no_frames += 1;
    Outcome::Wait
}
