//! The header that Linux puts before a frame whose checksum may be partial: `struct virtio_net_hdr`
//! of virtio 1.2 section 5.1.6, in the byte order of the machine.

use fastlane_core::{Packet, Partial};

/// Its length in octets, without the field for merged buffers.
pub(crate) const LENGTH: usize = 10;

/// The shortest frame that Linux takes: an Ethernet header.
const SHORTEST: usize = 14;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;

/// The partial checksum that a header tells of.
#[inline]
pub(crate) fn partial_checksum(header: &[u8; LENGTH]) -> Option<Partial> {
    (header[0] & NEEDS_CHECKSUM != 0).then(|| Partial {
        start: u16::from_ne_bytes([header[6], header[7]]),
        offset: u16::from_ne_bytes([header[8], header[9]]),
    })
}

/// The header of a frame with that partial checksum, or with none.
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

/// The header for a packet that is to be sent; `None` when Linux would not take the packet: it is
/// shorter than an Ethernet header, or its partial checksum is not inside it.
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
