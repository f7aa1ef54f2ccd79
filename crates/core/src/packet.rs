//! Packets: windows on frames.
//!
//! An application sees a [`Packet`] only by reference: it reads and writes the bytes, moves the two
//! ends of the window and sets a [`Verdict`]. Access to the frame behind it is
//! [`PacketOwnership`], for drivers and layers.
#![allow(unsafe_code, reason = "a window on a frame")]

use std::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::NO_FRAME;
use crate::{PortId, RawVerdict, RegionId, Verdict};

mod ownership;

pub use ownership::PacketOwnership;

/// Length of the metadata area at the start of every frame, in bytes. It lies immediately before
/// the headroom, so it stays where it is when an application prepends or trims headers.
pub const METADATA_LENGTH: usize = 64;

/// Window on a frame, with the port of arrival and the verdict.
///
/// Applications borrow packets and label them. They cannot create, store or free one. Programs in C
/// see the same 32 bytes (`struct fl_packet`).
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    data: NonNull<u8>,
    token: u64,
    length: u32,
    headroom: u16,
    tailroom: u16,
    port: PortId,
    flags: u16,
    verdict: RawVerdict,
}

const _: () = assert!(size_of::<Packet>() == 32);

// SAFETY: a packet is the only access to the bytes of its frame, as a `Box` is to its content, and
// the pool keeps the memory mapped while one of its frames is in use.
unsafe impl Send for Packet {}

/// Bytes of a frame that a packet shows, and the room around them.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) data: NonNull<u8>,
    pub(crate) length: u32,
    pub(crate) headroom: u16,
    pub(crate) tailroom: u16,
}

/// Partial checksum: the field holds the sum over the pseudo-header only, and the sender to the
/// wire adds the rest (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2 section 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Start of the summed bytes, in bytes from the start of the packet.
    pub start: u16,
    /// Position of the checksum field, in bytes from `start`.
    pub offset: u16,
}

/// Layout of the first [`METADATA_LENGTH`] bytes of a frame. A field is valid only if its flag is
/// set in the packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Metadata {
    /// Distance from the end of the metadata, so that moving the packet's start does not change it.
    checksum_start: u16,
    checksum_offset: u16,
    reserved: [u8; 60],
}

const _: () = assert!(size_of::<Metadata>() == METADATA_LENGTH);

/// Flag: the metadata holds a partial checksum.
const PARTIAL: u16 = 1;
/// Flag: the packet came from Linux, through the kernel peer of its port.
const FROM_KERNEL: u16 = 2;
/// Flag: steering has claimed the packet. Set by devices that steer, and by the lane.
const CLAIMED: u16 = 4;
/// Flag: another lane has labelled the packet, and this one only carries out the verdict.
const LABELLED: u16 = 8;

impl Packet {
    /// Creates a packet that shows `window` of the frame `token`.
    ///
    /// # Safety
    /// The frame must reach from `METADATA_LENGTH + headroom` bytes before `data`, at an address
    /// that is a multiple of two, to `length + tailroom` bytes after it. It must be initialised,
    /// and nothing else may use it as long as the token exists.
    #[inline]
    pub(crate) unsafe fn new(window: Window, token: u64, port: PortId) -> Self {
        let Window { data, length, headroom, tailroom } = window;
        let verdict = RawVerdict::from(Verdict::Kernel);
        Self { data, token, length, headroom, tailroom, port, flags: 0, verdict }
    }

    /// Returns the number of bytes, from the Ethernet header on, without the frame check sequence.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no packet that an application sees is empty")]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns the bytes of the packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the caller of `new` guarantees that the frame holds these bytes and that nothing
        // else uses it. Every method that moves the window keeps it inside the frame, and taking
        // the frame sets the length to zero.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.length as usize) }
    }

    /// Returns the bytes of the packet for writing.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.length as usize) }
    }

    /// Returns the header `T` at the start of the packet, or `None` if the packet is shorter.
    #[inline]
    #[must_use]
    pub fn header<T>(&mut self) -> Option<&mut T>
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        self.header_at(0)
    }

    /// Returns the header `T` at `offset` bytes from the start, or `None` if the packet ends
    /// before its end.
    #[inline]
    #[must_use]
    pub fn header_at<T>(&mut self, offset: usize) -> Option<&mut T>
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        let bytes = self.bytes_mut().get_mut(offset..)?;
        T::mut_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// Returns the number of bytes that can be prepended.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        usize::from(self.headroom)
    }

    /// Returns the number of bytes that can be appended.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        usize::from(self.tailroom)
    }

    /// Adds `count` bytes at the start and returns them. Their content is undefined. Returns
    /// `None` and changes nothing if the headroom is smaller.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        let taken = u16::try_from(count).ok()?;
        self.headroom = self.headroom.checked_sub(taken)?;
        // SAFETY: the headroom was at least `count`, so the new start lies inside the frame.
        self.data = unsafe { self.data.sub(count) };
        self.length += u32::from(taken);
        Some(&mut self.bytes_mut()[..count])
    }

    /// Adds `count` bytes at the end and returns them. Their content is undefined. Returns `None`
    /// and changes nothing if the tailroom is smaller.
    #[inline]
    #[must_use]
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        let taken = u16::try_from(count).ok()?;
        self.tailroom = self.tailroom.checked_sub(taken)?;
        let end = self.length as usize;
        self.length += u32::from(taken);
        Some(&mut self.bytes_mut()[end..])
    }

    /// Removes `count` bytes from the start. Returns false and changes nothing if the packet is
    /// shorter.
    #[inline]
    #[must_use]
    pub fn trim_front(&mut self, count: usize) -> bool {
        let Some(room) = u16::try_from(count).ok().and_then(|n| self.headroom.checked_add(n))
        else {
            return false;
        };
        if count > self.len() {
            return false;
        }
        self.headroom = room;
        // SAFETY: `count` is at most the length, so the new start is inside the frame or one byte
        // past it.
        self.data = unsafe { self.data.add(count) };
        self.length -= count as u32;
        true
    }

    /// Shortens the packet to `length` bytes. Returns false and changes nothing if it is shorter
    /// already.
    #[inline]
    #[must_use]
    pub fn truncate(&mut self, length: usize) -> bool {
        let Some(cut) = self.len().checked_sub(length) else {
            return false;
        };
        self.length = length as u32;
        self.tailroom = self.tailroom.saturating_add(u16::try_from(cut).unwrap_or(u16::MAX));
        true
    }

    /// Returns the port of arrival; for a packet that the application made, the port that it named.
    #[inline]
    #[must_use]
    pub fn port(&self) -> PortId {
        self.port
    }

    /// Returns the verdict as it is stored; it may have no meaning.
    #[inline]
    #[must_use]
    pub fn verdict(&self) -> RawVerdict {
        self.verdict
    }

    /// Sets the verdict.
    #[inline]
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.verdict = verdict.into();
    }

    /// Sets the verdict to any value. The lane drops and counts values without a meaning.
    #[inline]
    pub fn set_raw_verdict(&mut self, verdict: RawVerdict) {
        self.verdict = verdict;
    }

    fn metadata(&self) -> &Metadata {
        // SAFETY: the caller of `new` guarantees METADATA_LENGTH initialised bytes before the
        // headroom, aligned to two. Every caller of this has checked that the packet has its
        // frame: taking the frame clears the PARTIAL flag, and nothing sets it again.
        unsafe { self.data.sub(self.headroom() + METADATA_LENGTH).cast().as_ref() }
    }

    fn metadata_mut(&mut self) -> &mut Metadata {
        // SAFETY: as in `metadata`; `&mut self` makes the access exclusive.
        unsafe { self.data.sub(self.headroom() + METADATA_LENGTH).cast().as_mut() }
    }

    /// Returns the memory region of the packet's frame.
    #[inline]
    pub(crate) fn region(&self) -> RegionId {
        RegionId::of(self.token)
    }

    /// Returns the address of the first byte.
    #[inline]
    #[must_use]
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Returns true if the frame was not taken out of the packet.
    #[inline]
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.token != NO_FRAME
    }

    /// Returns true if Linux sent the packet, through the kernel peer of its port.
    #[inline]
    #[must_use]
    pub fn is_from_kernel(&self) -> bool {
        self.flags & FROM_KERNEL != 0
    }

    /// Returns the partial checksum, or `None` if the packet has none that lies inside it.
    #[inline]
    #[must_use]
    pub fn partial_checksum(&self) -> Option<Partial> {
        if self.flags & PARTIAL == 0 {
            return None;
        }
        let metadata = self.metadata();
        let start = metadata.checksum_start.checked_sub(self.headroom)?;
        Some(Partial { start, offset: metadata.checksum_offset })
    }

    /// Marks a checksum as partial, or with `None` all checksums as complete.
    #[inline]
    pub fn set_partial_checksum(&mut self, partial: Option<Partial>) {
        self.flags &= !PARTIAL;
        let Some(partial) = partial.filter(|_| self.has_frame()) else {
            return;
        };
        let Some(start) = partial.start.checked_add(self.headroom) else {
            return;
        };
        let metadata = self.metadata_mut();
        metadata.checksum_start = start;
        metadata.checksum_offset = partial.offset;
        self.flags |= PARTIAL;
    }

    /// Completes a partial checksum in place, for a port whose device does not do it. Returns false
    /// if its start or its field lies outside the packet; then the packet must not be sent.
    #[inline]
    pub fn complete_checksum(&mut self) -> bool {
        if self.flags & PARTIAL == 0 {
            return true;
        }
        let Some(Partial { start, offset }) = self.partial_checksum() else {
            return false;
        };
        self.flags &= !PARTIAL;
        fastlane_wire::checksum::complete_partial(self.bytes_mut(), start, offset).is_ok()
    }

    /// Returns true if both packets belong to one run: same verdict, same port, same flags. The
    /// three fields are adjacent, so this is one comparison of eight bytes.
    #[inline]
    pub(crate) fn same_run(&self, other: &Self) -> bool {
        self.run_key() == other.run_key()
    }

    /// Returns true if all packets belong to one run. It costs three instructions for each.
    #[inline]
    pub(crate) fn is_one_run(packets: &[Self]) -> bool {
        let Some(first) = packets.first().map(Self::run_key) else { return true };
        let (fours, rest) = packets.as_chunks::<4>();
        let differs = |packets: &[Self]| {
            packets.iter().fold(0, |differs, packet| differs | (packet.run_key() ^ first))
        };
        fours.iter().fold(differs(rest), |differs_before, four| differs_before | differs(four)) == 0
    }

    #[inline]
    fn run_key(&self) -> u64 {
        let port_and_flags = u64::from(self.port.0) | u64::from(self.flags) << 16;
        port_and_flags | u64::from(self.verdict.0) << 32
    }

    /// Marks the packet as claimed by steering.
    #[inline]
    pub(crate) fn set_claimed(&mut self) {
        self.flags |= CLAIMED;
    }

    /// Marks the packet as sent by Linux.
    #[inline]
    pub(crate) fn set_from_kernel(&mut self) {
        self.flags |= FROM_KERNEL;
    }

    /// Returns the packet as one that arrives at `port`.
    #[inline]
    pub(crate) fn arrived(self, port: PortId) -> Self {
        let flags = self.flags & !(FROM_KERNEL | CLAIMED | LABELLED);
        Self { port, flags, verdict: RawVerdict::from(Verdict::Kernel), ..self }
    }

    /// Takes the packet as one that arrives at `port`. It stores each field of the result once:
    /// changing fields first and moving the packet afterwards costs 3 ns more, because processors
    /// do not forward narrow stores to a wider load.
    #[inline]
    pub(crate) fn take_as_arrived(&mut self, port: PortId) -> Self {
        if self.flags & (FROM_KERNEL | CLAIMED | LABELLED) != 0 {
            // Rare, and every store counts here.
            self.flags &= !(FROM_KERNEL | CLAIMED | LABELLED);
        }
        Self { port, verdict: RawVerdict::from(Verdict::Kernel), ..self.take() }
    }
}

#[cfg(test)]
mod tests;
