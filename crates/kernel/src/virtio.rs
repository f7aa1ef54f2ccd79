//! Header before frames with partial checksums: `struct virtio_net_hdr` of virtio 1.2, section
//! 5.1.6, in host byte order.

use fastlane_core::{Packet, Partial};

/// Length in bytes, without the field for merged buffers.
pub(crate) const LENGTH: usize = 10;

/// Minimum frame length that Linux accepts: an Ethernet header.
const SHORTEST: usize = 14;

/// Flag `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;

/// Returns the partial checksum that a header describes.
#[inline]
pub(crate) fn partial_checksum(header: &[u8; LENGTH]) -> Option<Partial> {
    (header[0] & NEEDS_CHECKSUM != 0).then(|| Partial {
        start: u16::from_ne_bytes([header[6], header[7]]),
        offset: u16::from_ne_bytes([header[8], header[9]]),
    })
}

/// Builds the header of a frame with or without a partial checksum.
#[inline]
fn header(partial: Option<Partial>) -> [u8; LENGTH] {
    let mut header = [0; LENGTH];
    if let Some(partial) = partial {
        header[0] = NEEDS_CHECKSUM;
        header[6..8].copy_from_slice(&partial.start.to_ne_bytes());
        header[8..10].copy_from_slice(&partial.offset.to_ne_bytes());
    }
    header
}

/// Builds the header of a packet to be sent. Returns `None` if Linux would refuse the packet: it is
/// shorter than an Ethernet header, or its partial checksum is outside.
#[inline]
pub(crate) fn header_of(packet: &mut Packet) -> Option<[u8; LENGTH]> {
    let length = packet.len();
    let partial = packet.partial_checksum();
    let fits = match partial {
        Some(Partial { start, offset }) => usize::from(start) + usize::from(offset) + 2 <= length,
        // True when there is none, false when it was pushed out of the packet.
        None => packet.complete_checksum(),
    };
    (fits && length >= SHORTEST).then(|| header(partial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_checksum_survives_the_header() {
        let partial = Some(Partial { start: 34, offset: 6 });
        assert_eq!(partial_checksum(&header(partial)), partial);
        assert_eq!(partial_checksum(&header(None)), None);
    }
}
