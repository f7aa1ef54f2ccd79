//! The end of a ring that puts frames in.

use std::sync::atomic::Ordering;

use fastlane_core::{Packet, Pool, Sent};

use crate::region::Span;
use crate::ring::{Descriptor, Ring};

/// The most buffers that one frame may take.
pub(crate) const MOST_SEGMENTS: usize = 64;

/// How many slots ahead the octets of a buffer are asked for.
const AHEAD: u16 = 3;

/// The peer did what no peer does: the connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

/// The buffers of one ring of a client: one for each slot, side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Where the first begins, in the region that has all of them.
    pub(crate) start: u32,
    /// Octets of each.
    pub(crate) size: u32,
}

impl Buffers {
    /// The region of the client's rings and buffers.
    pub(crate) const REGION: u16 = 0;

    #[inline]
    fn span(self, slot: u16, ring: &Ring) -> Span {
        let offset = self.start + u32::from(slot & (ring.size() - 1)) * self.size;
        Span { region: Self::REGION, offset, length: self.size }
    }

    /// The descriptor of the empty buffer of a slot.
    #[inline]
    pub(crate) fn empty(self, slot: u16, ring: &Ring) -> Descriptor {
        Descriptor { span: self.span(slot, ring), more: false }
    }
}

/// Puts frames into one ring, by copies.
#[derive(Debug)]
pub(crate) struct Transmitter {
    ring: Ring,
    /// The client's: where its buffers are. A server is told by the descriptors.
    buffers: Option<Buffers>,
    /// The first slot that is not filled.
    next: u16,
    /// Free slots from there on that we know of.
    known: u16,
    /// Slots filled since the connection began.
    filled: u64,
}

impl Transmitter {
    /// Of a server without, of a client with its buffers.
    pub(crate) fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        Self { ring, buffers, next: 0, known: 0, filled: 0 }
    }

    /// The ring.
    #[inline]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Free slots. Looks again when fewer than `wanted` are known.
    #[inline]
    fn free(&mut self, wanted: usize) -> Result<u16, Violation> {
        if usize::from(self.known) < wanted {
            // Behind the client's last buffer the ring begins again with those that came back.
            let end = match self.buffers {
                Some(_) => self.ring.tail().load(Ordering::Acquire).wrapping_add(self.ring.size()),
                None => self.ring.head().load(Ordering::Acquire),
            };
            self.known = end.wrapping_sub(self.next);
            if self.known > self.ring.size() {
                self.known = 0;
                return Err(Violation("more slots are free than the ring has"));
            }
        }
        Ok(self.known)
    }

    /// Slots that are filled and that nobody has taken out.
    pub(crate) fn unread(&mut self) -> u64 {
        let free = self.free(usize::MAX).unwrap_or(0);
        u64::from(self.ring.size() - free).min(self.filled)
    }

    /// Copies packets into the ring, from the front of the slice, as many as there is space for;
    /// when it returns, the peer sees them. A violation comes with what was sent before.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        packets: &mut [Packet],
        pool: &mut Pool,
        sent: &mut Sent,
    ) -> Result<(), Violation> {
        let free = self.free(packets.len())?;
        let (mut done, mut full, mut result) = (0, false, Ok(()));
        for packet in packets {
            let length = packet.len();
            if done + AHEAD < free {
                let slot = self.next.wrapping_add(done + AHEAD);
                self.ring.regions().prefetch_to_write(self.buffer(slot), length);
            }
            if length > 0 && packet.complete_checksum() {
                match self.put(done, free, packet.bytes()) {
                    Ok(Some(slots)) => done += slots,
                    Ok(None) => {
                        full = true;
                        break;
                    }
                    Err(Refused::TooLong) => {
                        pool.release(packet);
                        sent.taken += 1;
                        continue;
                    }
                    Err(Refused::Violation(violation)) => {
                        result = Err(violation);
                        break;
                    }
                }
                sent.packets += 1;
                sent.bytes += length as u64;
            }
            pool.release(packet);
            sent.taken += 1;
        }
        self.publish(done);
        if full {
            self.known = 0; // some may be left, but too few: look again next time
        }
        result
    }

    #[inline]
    fn publish(&mut self, slots: u16) {
        if slots == 0 {
            return;
        }
        self.next = self.next.wrapping_add(slots);
        self.known -= slots;
        self.filled += u64::from(slots);
        let end = if self.buffers.is_some() { self.ring.head() } else { self.ring.tail() };
        end.store(self.next, Ordering::Release);
    }

    /// The buffer of a slot.
    #[inline]
    fn buffer(&self, slot: u16) -> Span {
        match self.buffers {
            Some(buffers) => buffers.span(slot, &self.ring),
            None => self.ring.descriptor(slot).span,
        }
    }

    /// Puts a frame behind `done` of `free` slots; returns how many it took, or nothing when there
    /// are too few.
    #[inline]
    fn put(&self, done: u16, free: u16, frame: &[u8]) -> Result<Option<u16>, Refused> {
        if done == free {
            return Ok(None);
        }
        let slot = self.next.wrapping_add(done);
        let span = self.buffer(slot);
        if frame.len() > span.length as usize {
            return self.put_chain(slot, free - done, frame);
        }
        self.fill(slot, span, frame, false)?;
        Ok(Some(1))
    }

    #[inline]
    fn fill(&self, slot: u16, span: Span, part: &[u8], more: bool) -> Result<(), Violation> {
        if !self.ring.regions().write(span, part) {
            return Err(Violation("a buffer lies outside of the shared memory"));
        }
        let span = Span { length: part.len() as u32, ..span };
        self.ring.describe(slot, Descriptor { span, more });
        Ok(())
    }

    /// A frame that is longer than a buffer. First its slots are counted: what is written into a
    /// descriptor is lost to the next try.
    #[cold]
    fn put_chain(&self, first: u16, free: u16, frame: &[u8]) -> Result<Option<u16>, Refused> {
        let (mut slots, mut room) = (0, 0);
        while room < frame.len() {
            if usize::from(slots) >= MOST_SEGMENTS.min(self.ring.size().into()) {
                return Err(Refused::TooLong);
            }
            if slots == free {
                return Ok(None);
            }
            let length = self.buffer(first.wrapping_add(slots)).length as usize;
            if length == 0 {
                return Err(Violation("a buffer has no octet").into());
            }
            room += length;
            slots += 1;
        }
        let mut rest = frame;
        for number in 0..slots {
            let slot = first.wrapping_add(number);
            let span = self.buffer(slot);
            let (part, behind) = rest.split_at(rest.len().min(span.length as usize));
            self.fill(slot, span, part, !behind.is_empty())?;
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(Violation("a buffer shrank").into());
        }
        Ok(Some(slots))
    }
}

/// Why a frame is not sent.
enum Refused {
    TooLong,
    Violation(Violation),
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}
