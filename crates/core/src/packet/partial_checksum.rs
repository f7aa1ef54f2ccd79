//! Partial checksums: the metadata of a frame says where a packet's checksum is to be completed.

use fastlane_wire::checksum;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{PARTIAL, Packet};

/// Partial checksum: the field holds the sum over the pseudo-header only, and the sender to the
/// wire adds the rest (`VIRTIO_NET_HDR_F_NEEDS_CSUM`, virtio 1.2 section 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Start of the summed bytes, in bytes from the start of the packet.
    pub start: u16,
    /// Position of the checksum field, in bytes from `start`.
    pub offset: u16,
}

/// Layout of the first [`METADATA_LENGTH`](super::METADATA_LENGTH) bytes of a frame. A field is
/// valid only if its flag is set in the packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Metadata {
    /// Distance from the end of the metadata, so that moving the packet's start does not change it.
    checksum_start: u16,
    checksum_offset: u16,
    reserved: [u8; 60],
}

impl Packet {
    /// Returns the partial checksum, or `None` if the packet has none that lies inside it.
    #[inline]
    #[must_use]
    pub fn partial_checksum(&self) -> Option<Partial> {
        // A packet whose frame was taken keeps its flags, but has no metadata.
        if self.flags & PARTIAL == 0 || !self.has_frame() {
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

    /// Completes a partial checksum in place. Returns false as
    /// [`complete_checksum`](Self::complete_checksum) does.
    pub(super) fn complete_partial_checksum(&mut self) -> bool {
        let Some(Partial { start, offset }) = self.partial_checksum() else {
            return false;
        };
        self.flags &= !PARTIAL;
        checksum::complete_partial(self.bytes_mut(), start, offset).is_ok()
    }
}
