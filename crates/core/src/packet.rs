//! A window on a frame.
#![allow(unsafe_code, reason = "a window on a frame")]

use std::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Frame, Home, RawVerdict, Verdict};

/// Bytes at the start of every frame that hold a packet's rarer metadata. They lie immediately
/// before the head room, so they stay where they are when an application prepends or trims headers.
pub const METADATA_LENGTH: usize = 64;

/// The number of a port: its place among the configured ports, in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

/// A checksum that is not complete: the field holds the sum over the pseudo header only, and
/// whoever puts the packet on a wire adds the rest (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2
/// section 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Where the sum begins, in bytes from the start of the packet.
    pub start: u16,
    /// Where the checksum field is, in bytes from `start`.
    pub offset: u16,
}

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

    /// Whether the lane may handle both alike: same verdict, same port, same flags. The three lie
    /// side by side, so that this is one comparison of eight bytes.
    #[inline]
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.way() == other.way()
    }

    /// Whether all [go](Self::goes_with) together: three instructions for each.
    #[inline]
    pub(crate) fn all_go_together(packets: &[Self]) -> bool {
        let Some(first) = packets.first().map(Self::way) else { return true };
        let (fours, rest) = packets.as_chunks::<4>();
        let differs = |packets: &[Self]| {
            packets.iter().fold(0, |differs, packet| differs | (packet.way() ^ first))
        };
        fours.iter().fold(differs(rest), |differs_before, four| differs_before | differs(four)) == 0
    }

    #[inline]
    fn way(&self) -> u64 {
        let port_and_flags = u64::from(self.port.0) | u64::from(self.flags) << 16;
        port_and_flags | u64::from(self.verdict.0) << 32
    }

    /// Whether Linux sent the packet (it came through the kernel peer of its port).
    #[inline]
    #[must_use]
    pub fn is_from_kernel(&self) -> bool {
        self.flags & FROM_KERNEL != 0
    }

    #[inline]
    pub(crate) fn set_from_kernel(&mut self) {
        self.flags |= FROM_KERNEL;
    }

    /// Whether steering has claimed the packet, on a port where the lane looks after that.
    #[inline]
    pub(crate) fn is_steered(&self) -> bool {
        self.flags & STEERED != 0
    }

    #[inline]
    pub(crate) fn set_steered(&mut self) {
        self.flags |= STEERED;
    }

    #[inline]
    pub(crate) fn set_unsteered(&mut self) {
        self.flags &= !STEERED;
    }

    /// What of the flags says how the packet came, for one that is put away.
    pub(crate) fn origin(&self) -> u16 {
        self.flags & (FROM_KERNEL | STEERED)
    }

    /// Says how a packet came that was put away.
    pub(crate) fn set_origin(&mut self, origin: u16) {
        self.flags |= origin & (FROM_KERNEL | STEERED);
    }

    /// The partial checksum, if the packet has one that still lies inside it.
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

    /// Whether the packet has a partial checksum that no longer lies inside it, so that nobody can
    /// complete it.
    #[inline]
    pub(crate) fn is_beyond_completion(&self) -> bool {
        self.flags & PARTIAL != 0 && self.partial_checksum().is_none()
    }

    /// Says that a checksum is partial, or with `None` that all are complete.
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

    /// Completes a partial checksum in place, for a port that cannot leave it to its device.
    /// False when the packet said it had one where none can be: then it is not to be sent.
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

    /// As [`Custody::take`], as a packet that arrives at `port`. One store for each field of the
    /// new place: to change fields first and to move the packet then costs 3 ns, because processors
    /// do not forward narrow stores to a wider load.
    #[inline]
    pub(crate) fn take_as_arrived(&mut self, port: PortId) -> Self {
        if self.flags & (FROM_KERNEL | STEERED | LABELLED) != 0 {
            // Rare: every store counts here.
            self.flags &= !(FROM_KERNEL | STEERED | LABELLED);
        }
        Self { port, verdict: RawVerdict::from(Verdict::Kernel), ..self.take() }
    }

    /// Takes over the content, the port and the labels of a packet of the same length, or of one
    /// that nobody can send if this one is empty.
    pub(crate) fn be_copy_of(&mut self, original: &Self) {
        if self.length == original.length {
            self.bytes_mut().copy_from_slice(original.bytes());
        }
        self.flags = original.flags & !PARTIAL;
        self.set_partial_checksum(original.partial_checksum());
        self.port = original.port;
        self.verdict = original.verdict;
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

/// What only a driver may do with a packet: the facade does not pass this trait on, so that an
/// application can neither keep nor lose a frame.
pub trait Custody: Sized {
    /// Takes the frame out, to hand it to a device or back to the pool. What is left is empty, and
    /// a second call finds nothing.
    fn take_frame(&mut self) -> Option<Frame>;

    /// Takes the whole packet out of a burst. What is left is empty.
    #[must_use]
    fn take(&mut self) -> Self;

    /// Says from which port the packet comes from now on.
    fn set_port(&mut self, port: PortId);

    /// Whether the application has seen the packet in another lane, so that this one is to carry
    /// its verdict out and nothing else.
    fn is_labelled(&self) -> bool;

    /// Says so.
    fn set_labelled(&mut self, labelled: bool);
}

impl Custody for Packet {
    #[inline]
    fn take_frame(&mut self) -> Option<Frame> {
        let token = std::mem::replace(&mut self.token, NO_FRAME);
        self.length = 0;
        self.headroom = 0;
        self.tailroom = 0;
        self.flags = 0;
        (token != NO_FRAME).then(|| Frame::from_token(token))
    }

    #[inline]
    fn take(&mut self) -> Self {
        let taken = Self { ..*self };
        *self = Self {
            data: taken.data,
            token: NO_FRAME,
            length: 0,
            headroom: 0,
            tailroom: 0,
            port: PortId(0),
            flags: 0,
            verdict: RawVerdict(0),
        };
        taken
    }

    #[inline]
    fn set_port(&mut self, port: PortId) {
        self.port = port;
    }

    #[inline]
    fn is_labelled(&self) -> bool {
        self.flags & LABELLED != 0
    }

    #[inline]
    fn set_labelled(&mut self, labelled: bool) {
        self.flags = self.flags & !LABELLED | if labelled { LABELLED } else { 0 };
    }
}

#[cfg(test)]
mod tests;
