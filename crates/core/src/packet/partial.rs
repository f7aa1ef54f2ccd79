//! Checksums that are not complete.

use super::{PARTIAL, Packet};

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

impl Packet {
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
}
