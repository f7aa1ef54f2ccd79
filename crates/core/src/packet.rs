//! A window on a frame.
#![allow(unsafe_code, reason = "a window on a frame")]

use std::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Home, RawVerdict, Verdict};

mod custody;
mod origin;
mod partial;

pub use custody::Custody;
pub use partial::Partial;

/// Bytes at the start of every frame that hold a packet's rarer metadata. They lie immediately
/// before the head room, so they stay where they are when an application prepends or trims headers.
pub const METADATA_LENGTH: usize = 64;

/// The number of a port: its place among the configured ports, in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

/// A packet: which bytes of which frame, where it came from, what shall become of it.
///
/// Applications borrow packets and label them; they can neither make, keep nor free one. Programs
/// in C see the same 32 bytes.
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

// SAFETY: a packet is the only way to the bytes of its frame, as a `Box` is to its content, and the
// pool keeps the memory mapped while one of its frames is out.
unsafe impl Send for Packet {}

/// The metadata in the first [`METADATA_LENGTH`] bytes of a frame; valid only as the flags say.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Metadata {
    /// From the end of the metadata, so that moving the packet's start does not change it.
    checksum_start: u16,
    checksum_offset: u16,
    reserved: [u8; 60],
}

const _: () = assert!(size_of::<Metadata>() == METADATA_LENGTH);

/// No frame: the token of a packet whose frame was taken.
pub(crate) const NO_FRAME: u64 = u64::MAX;
/// The metadata holds a partial checksum.
const PARTIAL: u16 = 1;
/// The packet came from Linux, through the kernel peer of its port.
const FROM_KERNEL: u16 = 2;
/// Steering has claimed the packet; set by devices that steer, and by the lane.
const STEERED: u16 = 4;
/// Another lane has labelled the packet, and this one only carries the verdict out.
const LABELLED: u16 = 8;

impl Packet {
    /// A packet in the bytes from `data` on.
    ///
    /// # Safety
    /// The frame must reach from `METADATA_LENGTH + headroom` bytes before `data`, at an address
    /// that is a multiple of two, to `length + tailroom` bytes after it, be initialised, and belong
    /// to nobody else as long as `token` stands for it.
    #[inline]
    pub(crate) unsafe fn new(
        data: NonNull<u8>,
        token: u64,
        length: u32,
        headroom: u16,
        tailroom: u16,
        port: PortId,
    ) -> Self {
        let verdict = RawVerdict::from(Verdict::Kernel);
        Self { data, token, length, headroom, tailroom, port, flags: 0, verdict }
    }

    /// Bytes in the packet, from the Ethernet header on, without the frame check sequence.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no packet that an application sees is empty")]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// The bytes of the packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `new` was promised that the frame holds these bytes and is nobody else's; every
        // method that moves the window keeps it inside, and a taken frame leaves a length of zero.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.length as usize) }
    }

    /// The bytes of the packet, to be changed.
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.length as usize) }
    }

    /// The header `T` at the start of the packet, or `None` when the packet is shorter.
    #[inline]
    #[must_use]
    pub fn header<T>(&mut self) -> Option<&mut T>
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        self.header_at(0)
    }

    /// The header `T` at `offset` bytes from the start, or `None` when the packet ends before.
    #[inline]
    #[must_use]
    pub fn header_at<T>(&mut self, offset: usize) -> Option<&mut T>
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        let bytes = self.bytes_mut().get_mut(offset..)?;
        T::mut_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// Bytes that can be prepended.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        usize::from(self.headroom)
    }

    /// Bytes that can be appended.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        usize::from(self.tailroom)
    }

    /// Moves the start forward over `count` new bytes, whose content is undefined, and returns
    /// them; `None`, and no change, when there is less head room.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        let taken = u16::try_from(count).ok()?;
        self.headroom = self.headroom.checked_sub(taken)?;
        // SAFETY: the head room says that so many bytes before `data` are the packet's frame.
        self.data = unsafe { self.data.sub(count) };
        self.length += u32::from(taken);
        Some(&mut self.bytes_mut()[..count])
    }

    /// Extends the end by `count` bytes, whose content is undefined, and returns them; `None`, and
    /// no change, when there is less tail room.
    #[inline]
    #[must_use]
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        let taken = u16::try_from(count).ok()?;
        self.tailroom = self.tailroom.checked_sub(taken)?;
        let end = self.length as usize;
        self.length += u32::from(taken);
        Some(&mut self.bytes_mut()[end..])
    }

    /// Removes `count` bytes from the start; false, and no change, when there are fewer.
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
        // SAFETY: `count` is at most the length, so the new start is inside the frame or one past
        // it.
        self.data = unsafe { self.data.add(count) };
        self.length -= count as u32;
        true
    }

    /// Shortens the packet to `length` bytes; false, and no change, when it is shorter already.
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

    /// The port that the packet came from (of a new packet: the one that it was made for).
    #[inline]
    #[must_use]
    pub fn port(&self) -> PortId {
        self.port
    }

    /// The label as it lies in memory.
    #[inline]
    #[must_use]
    pub fn verdict(&self) -> RawVerdict {
        self.verdict
    }

    /// Labels the packet.
    #[inline]
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.verdict = verdict.into();
    }

    /// Labels the packet with a word that need not mean anything; the lane checks it.
    #[inline]
    pub fn set_raw_verdict(&mut self, verdict: RawVerdict) {
        self.verdict = verdict;
    }

    fn metadata(&self) -> &Metadata {
        // SAFETY: `new` was promised METADATA_LENGTH initialised bytes before the head room,
        // aligned to two. Every caller has made sure that the packet still has its frame: one that
        // was taken has lost the PARTIAL flag and never gets it again.
        unsafe { self.data.sub(self.headroom() + METADATA_LENGTH).cast().as_ref() }
    }

    fn metadata_mut(&mut self) -> &mut Metadata {
        // SAFETY: as in `metadata`; `&mut self` makes the access exclusive.
        unsafe { self.data.sub(self.headroom() + METADATA_LENGTH).cast().as_mut() }
    }

    /// Whose memory the packet's frame is.
    #[inline]
    pub(crate) fn home(&self) -> Home {
        Home::of(self.token)
    }

    /// Which frame it is; no two packets have the same, those without one excepted.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// The address of the first byte.
    #[inline]
    #[must_use]
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Whether the packet still has its frame.
    #[inline]
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.token != NO_FRAME
    }
}

#[cfg(test)]
mod tests;
