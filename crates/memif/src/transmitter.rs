//! The transmitting end of a ring: copies frames into the shared memory.

use std::sync::atomic::Ordering;

use fastlane_core::{Packet, Pool, Sent};

use crate::layout::Buffers;
use crate::region::{Buffer, Span};
use crate::ring::{Descriptor, MAX_SEGMENTS, Ring, Violation};

/// Number of slots whose buffers are looked up, and prefetched, at once.
const AHEAD: usize = 8;

/// Transmits frames into one ring.
#[derive(Debug)]
pub(crate) struct Transmitter {
    ring: Ring,
    /// Buffers of the ring; only a client has them. A server reads them from the descriptors.
    buffers: Option<Buffers>,
    /// Index of the next slot to be filled.
    next: u16,
    /// Number of free slots from `next` on, when the peer's index was last read.
    available: u16,
    /// Number of slots filled since the connection began.
    filled: u64,
}

impl Transmitter {
    /// Creates the transmitter. A client passes its buffers, a server `None`.
    pub(crate) fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        Self { ring, buffers, next: 0, available: 0, filled: 0 }
    }

    /// Returns the ring.
    #[inline]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the number of free slots. Reads the peer's index if fewer than `wanted` are known.
    ///
    /// # Errors
    /// Returns a violation if the index implies more free slots than the ring has: a peer could
    /// make a lane overwrite frames that were not read.
    #[inline]
    fn free(&mut self, wanted: usize) -> Result<u16, Violation> {
        if usize::from(self.available) < wanted {
            // A client owns all buffers, so the free slots end one ring size after the tail.
            let end = match self.buffers {
                Some(_) => self.ring.tail().load(Ordering::Acquire).wrapping_add(self.ring.size()),
                None => self.ring.head().load(Ordering::Acquire),
            };
            self.available = end.wrapping_sub(self.next);
            if self.available > self.ring.size() {
                self.available = 0;
                return Err(Violation("the ring index implies more free slots than the ring has"));
            }
        }
        Ok(self.available)
    }

    /// Returns the number of filled slots that the peer has not read.
    pub(crate) fn unread(&mut self) -> u64 {
        let free = self.free(usize::MAX).unwrap_or(0);
        u64::from(self.ring.size() - free).min(self.filled)
    }

    /// Copies packets into the ring, from the front of the slice, as many as there is space for.
    /// The peer sees them when the function returns.
    ///
    /// # Errors
    /// Returns a violation of the peer; the packets before it were sent.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        packets: &mut [Packet],
        pool: &mut Pool,
        sent: &mut Sent,
    ) -> Result<(), Violation> {
        let free = self.free(packets.len())?;
        let (mut done, mut full, mut result) = (0, false, Ok(()));
        let (mut taken, mut count, mut bytes) = (0, 0, 0);
        let (mut ahead, mut first, mut end) = ([None; AHEAD], 0, 0);
        let offered = packets.len();
        for packet in packets {
            let length = packet.len();
            if length > 0 && packet.complete_checksum() {
                if done >= end && done < free {
                    let wanted = AHEAD.min(offered - taken).min((free - done).into());
                    (ahead, first, end) =
                        (self.look_ahead(done, wanted, length), done, done + wanted as u16);
                }
                let buffer = ahead[usize::from(done - first) % AHEAD];
                match self.put(done, free, buffer, packet.bytes()) {
                    Ok(Some(slots)) => done += slots,
                    Ok(None) => {
                        full = true;
                        break;
                    }
                    Err(Refused::TooLong) => {
                        pool.release(packet);
                        taken += 1;
                        continue;
                    }
                    Err(Refused::Violation(violation)) => {
                        result = Err(violation);
                        break;
                    }
                }
                count += 1;
                bytes += length as u64;
            }
            pool.release(packet);
            taken += 1;
        }
        *sent = Sent { taken, packets: count, bytes };
        self.publish(done);
        if full {
            self.available = 0; // too few slots are left: read the index again next time
        }
        result
    }

    #[inline]
    fn publish(&mut self, slots: u16) {
        if slots == 0 {
            return;
        }
        self.next = self.next.wrapping_add(slots);
        self.available -= slots;
        self.filled += u64::from(slots);
        let end = if self.buffers.is_some() { self.ring.head() } else { self.ring.tail() };
        end.store(self.next, Ordering::Release);
    }

    /// Returns the span of a slot's buffer.
    #[inline]
    fn span(&self, slot: u16) -> Span {
        match self.buffers {
            Some(buffers) => buffers.span(slot, &self.ring),
            None => self.ring.read_descriptor(slot).span,
        }
    }

    /// Returns the buffers of `wanted` slots, `done` slots ahead, and prefetches them for frames of
    /// about `length` octets. A buffer outside of the shared memory is `None`.
    // Not inlined: the loop over the packets needs the registers.
    #[inline(never)]
    fn look_ahead(&self, done: u16, wanted: usize, length: usize) -> [Option<Buffer<'_>>; AHEAD] {
        let mut all = [None; AHEAD];
        let first = self.next.wrapping_add(done);
        for (number, buffer) in all[..wanted].iter_mut().enumerate() {
            *buffer = self.ring.regions().buffer(self.span(first.wrapping_add(number as u16)));
            if let Some(buffer) = buffer {
                buffer.prefetch_to_write(length);
            }
        }
        all
    }

    /// Copies a frame behind `done` of `free` slots, into the buffer of that slot if it fits.
    /// Returns the number of slots it took, or `None` if there are too few.
    #[inline]
    fn put(
        &self,
        done: u16,
        free: u16,
        buffer: Option<Buffer<'_>>,
        frame: &[u8],
    ) -> Result<Option<u16>, Refused> {
        if done == free {
            return Ok(None);
        }
        let slot = self.next.wrapping_add(done);
        match buffer {
            Some(buffer) if frame.len() > buffer.len() => self.put_chain(slot, free - done, frame),
            buffer => {
                self.fill(slot, buffer, frame, false)?;
                Ok(Some(1))
            }
        }
    }

    #[inline]
    fn fill(
        &self,
        slot: u16,
        buffer: Option<Buffer<'_>>,
        part: &[u8],
        more: bool,
    ) -> Result<(), Violation> {
        // A server's descriptors come from the peer: without the check that made the buffer it
        // could direct our copy to any address.
        let Some(buffer) = buffer.filter(|buffer| buffer.write(part)) else {
            return Err(Violation("a buffer lies outside of the shared memory"));
        };
        let span = Span { length: part.len() as u32, ..buffer.span() };
        self.ring.write_descriptor(slot, Descriptor { span, more });
        Ok(())
    }

    /// Copies a frame that is longer than a buffer into several. Counts its slots first, because
    /// writing a descriptor destroys the length that a retry would need.
    ///
    /// The peer may change a descriptor between the two passes, so each length is checked again: an
    /// empty buffer would make the loop endless, a shrunken one would lose the end of the frame.
    #[cold]
    fn put_chain(&self, first: u16, free: u16, frame: &[u8]) -> Result<Option<u16>, Refused> {
        let (mut slots, mut room) = (0, 0);
        while room < frame.len() {
            if usize::from(slots) >= MAX_SEGMENTS.min(self.ring.size().into()) {
                return Err(Refused::TooLong);
            }
            if slots == free {
                return Ok(None);
            }
            let length = self.span(first.wrapping_add(slots)).length as usize;
            if length == 0 {
                return Err(Violation("a buffer has no octet").into());
            }
            room += length;
            slots += 1;
        }
        let mut rest = frame;
        for number in 0..slots {
            let slot = first.wrapping_add(number);
            let span = self.span(slot);
            let (part, behind) = rest.split_at(rest.len().min(span.length as usize));
            self.fill(slot, self.ring.regions().buffer(span), part, !behind.is_empty())?;
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(Violation("a buffer shrank").into());
        }
        Ok(Some(slots))
    }
}

/// Reason why a frame is not sent.
enum Refused {
    TooLong,
    Violation(Violation),
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}
