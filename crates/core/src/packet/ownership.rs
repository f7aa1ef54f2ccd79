//! Access to a packet's frame.

use super::{CLAIMED, FROM_KERNEL, LABELLED, PARTIAL, Packet};
use crate::frame::NO_FRAME;
use crate::{Frame, PortId, RawVerdict};

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

    /// Copies content, port, flags and verdict of a packet of the same length. The content stays
    /// undefined if the lengths differ, which callers use for packets that no port can send.
    fn copy_from(&mut self, original: &Self);
}

impl PacketOwnership for Packet {
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
        self.token
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
        if self.length == original.length {
            self.bytes_mut().copy_from_slice(original.bytes());
        }
        self.flags = original.flags & !PARTIAL;
        self.set_partial_checksum(original.partial_checksum());
        self.port = original.port;
        self.verdict = original.verdict;
    }
}
