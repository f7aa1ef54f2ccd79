//! Packets: windows on frames, and the right to a frame.
//!
//! An application sees a [`Packet`] only by reference: it reads and writes the bytes, moves the two
//! ends of the window and sets a [`Verdict`]. The frame behind it belongs to the lane: drivers and
//! layers take it out as a [`Frame`], by [`PacketOwnership`]. A frame lies in one memory region
//! ([`RegionId`]).
#![allow(unsafe_code, reason = "a window on a frame")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{PortId, RawVerdict, Verdict};

mod frame;
mod partial_checksum;

use frame::NO_FRAME;
pub use frame::{Frame, MOVED, RegionId};
use partial_checksum::Metadata;
pub use partial_checksum::Partial;

/// Length of the metadata area at the start of every frame, in bytes. It lies immediately before
/// the headroom, so it stays where it is when an application prepends or trims headers.
pub const METADATA_LENGTH: usize = 64;

const _: () = assert!(size_of::<Metadata>() == METADATA_LENGTH);

/// Window on a frame, with the port of arrival and the verdict.
///
/// Applications borrow packets and label them. They cannot create, store or free one. Programs in C
/// see the same 32 bytes (`struct fl_packet`).
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    data: NonNull<u8>,
    /// Token of the frame, with [`MOVED`] if the window has changed.
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
        self.token |= MOVED;
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
        self.token |= MOVED;
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
        self.token |= MOVED;
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
        self.token |= MOVED;
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
        // frame.
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

    /// Returns true if Linux sent the packet, through the kernel peer of its port. Such packets
    /// leave without the application; observers see them.
    #[inline]
    #[must_use]
    pub fn is_from_kernel(&self) -> bool {
        self.flags & FROM_KERNEL != 0
    }

    /// Completes a partial checksum in place, for a port whose device does not do it. Returns false
    /// if its start or its field lies outside the packet; then the packet must not be sent.
    #[inline]
    pub fn complete_checksum(&mut self) -> bool {
        if self.flags & PARTIAL == 0 {
            return true;
        }
        self.complete_partial_checksum()
    }

    /// Returns verdict, port and flags as one number. The three fields are adjacent, so it is one
    /// load of eight bytes. Adjacent packets with equal numbers belong to one run.
    #[inline]
    pub(crate) fn run_key(&self) -> u64 {
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

    /// Returns the [`run_key`](Self::run_key) of this packet as an arrival at `port`: labelled
    /// `Kernel`, with a partial checksum if it has one, and without the other flags.
    #[inline]
    pub(crate) fn arrival_key(&self, port: PortId) -> u64 {
        u64::from(port.0) | u64::from(self.flags & PARTIAL) << 16
    }

    /// Moves the packet into `slot` and gives it a [`run_key`](Self::run_key). An empty packet
    /// without a frame stays if it `EMPTIES` this one; otherwise the caller must forget it. Returns
    /// the length in the lower 32 bits, with anything above.
    // Whole words: two loads and three stores move the packet, and one store empties this one.
    #[inline(always)]
    pub(crate) fn move_into<const EMPTIES: bool>(
        &mut self,
        slot: &mut MaybeUninit<Self>,
        run_key: u64,
    ) -> u64 {
        let (from, to) = (&raw mut *self, slot.as_mut_ptr());
        // SAFETY: both are valid for one packet, whose fields lie in four words without gaps, and
        // do not overlap. Pointer and token are copied as they are. This packet loses its frame or
        // is forgotten, so the slot's is the only one that has it.
        unsafe {
            to.cast::<Address>().copy_from_nonoverlapping(from.cast(), 1);
            let window = (&raw const (*from).length).cast::<u64>().read();
            (&raw mut (*to).length).cast::<u64>().write(window);
            (&raw mut (*to).port).cast::<u64>().write(run_key);
            if EMPTIES {
                (*from).set_taken();
            }
            window
        }
    }
}

impl Packet {
    /// Marks the frame as taken. The packet is empty then. It keeps its flags.
    #[inline(always)]
    fn set_taken(&mut self) {
        // SAFETY: token, length, headroom and tailroom are two adjacent words, and one store.
        unsafe { (&raw mut self.token).cast::<[u64; 2]>().write(TAKEN) };
    }
}

/// First two words of a packet.
type Address = [MaybeUninit<u64>; 2];

/// Token, length, headroom and tailroom of a packet whose frame was taken.
const TAKEN: [u64; 2] = [NO_FRAME, 0];

const _: () = assert!(cfg!(target_endian = "little"), "the words of a packet are little-endian");

/// Access to the frame and the flags of a packet, for drivers and the layers around a lane.
///
/// The facade does not re-export this trait, so an application can neither keep nor lose a frame.
pub trait PacketOwnership: Sized {
    /// Takes the frame out, to pass it to a device or back to the pool. The packet is empty
    /// afterwards, and a second call returns `None`.
    fn take_frame(&mut self) -> Option<Frame>;

    /// Takes the whole packet out of a burst. An empty packet without a frame stays in its slot.
    #[must_use]
    fn take(&mut self) -> Self;

    /// Sets the port of arrival.
    fn set_port(&mut self, port: PortId);

    /// Returns true if the application has seen the packet in another lane, so that this lane only
    /// carries out its verdict.
    fn is_labelled(&self) -> bool;

    /// Marks the packet as labelled by the application of another lane, or clears the mark.
    fn set_labelled(&mut self, labelled: bool);

    /// Returns true if steering has claimed the packet, on a port that the lane or its device
    /// steers.
    fn is_claimed(&self) -> bool;

    /// Leaves the packet to Linux: steering no longer claims it.
    fn set_unclaimed(&mut self);

    /// Returns true if the packet has a partial checksum whose start was trimmed away, so that
    /// nothing can complete it.
    fn has_lost_checksum(&self) -> bool;

    /// Returns the token of the frame. No two packets with a frame have the same.
    fn token(&self) -> u64;

    /// Returns the flags that describe the arrival, for a packet whose content is stored elsewhere.
    fn arrival_flags(&self) -> u16;

    /// Restores the flags that describe the arrival.
    fn set_arrival_flags(&mut self, flags: u16);

    /// Copies content, port, flags and verdict of a packet of the same length. If the lengths
    /// differ, the content stays undefined and the checksum is none that must be completed: callers
    /// use that for packets that no port can send.
    fn copy_from(&mut self, original: &Self);
}

impl PacketOwnership for Packet {
    #[inline]
    fn take_frame(&mut self) -> Option<Frame> {
        let token = self.token;
        self.set_taken();
        (token != NO_FRAME).then(|| Frame::from_token(token))
    }

    #[inline]
    fn take(&mut self) -> Self {
        let taken = Self { ..*self };
        self.set_taken();
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

    #[inline]
    fn is_claimed(&self) -> bool {
        self.flags & CLAIMED != 0
    }

    #[inline]
    fn set_unclaimed(&mut self) {
        self.flags &= !CLAIMED;
    }

    #[inline]
    fn has_lost_checksum(&self) -> bool {
        self.flags & PARTIAL != 0 && self.partial_checksum().is_none()
    }

    #[inline]
    fn token(&self) -> u64 {
        self.token & !MOVED
    }

    #[inline]
    fn arrival_flags(&self) -> u16 {
        self.flags & (FROM_KERNEL | CLAIMED)
    }

    #[inline]
    fn set_arrival_flags(&mut self, flags: u16) {
        self.flags |= flags & (FROM_KERNEL | CLAIMED);
    }

    #[inline]
    fn copy_from(&mut self, original: &Self) {
        self.flags = original.flags & !PARTIAL;
        if self.length == original.length {
            self.bytes_mut().copy_from_slice(original.bytes());
            self.set_partial_checksum(original.partial_checksum());
        }
        self.port = original.port;
        self.verdict = original.verdict;
    }
}

/// Returns true if both packets belong to one run: same verdict, same port, same flags.
#[inline]
pub(crate) fn same_run(one: &Packet, other: &Packet) -> bool {
    one.run_key() == other.run_key()
}

/// Returns true if all packets belong to one run. It costs two instructions for each.
#[inline]
pub(crate) fn is_one_run(packets: &[Packet]) -> bool {
    let [first, _, ..] = packets else { return true };
    let first = first.run_key();
    let is_same = |packet: &Packet| packet.run_key() == first;
    let mut rest = packets;
    while let Some((eight, behind)) = rest.split_first_chunk::<8>() {
        if !eight.iter().all(is_same) {
            return false;
        }
        rest = behind;
    }
    rest.iter().all(is_same)
}

#[cfg(test)]
mod tests;
