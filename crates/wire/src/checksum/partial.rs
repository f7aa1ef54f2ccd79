//! Partial checksums. Linux leaves transport checksums to the device. On veth and TAP there is no
//! device, and a frame arrives with only the pseudo header's sum in the field.

use zerocopy::byteorder::network_endian::U16;

use super::transport::{Covered, write};
use super::{ChecksumError, Sum};
use crate::{IpProtocol, Layers, header};

/// Position of a partial checksum, as in `virtio_net_hdr` (virtio 1.2 clause 5.1.6,
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Start of the sum, in bytes from the start of the frame (`csum_start`).
    pub start: u16,
    /// Offset of the checksum field, in bytes from `start` (`csum_offset`).
    pub offset: u16,
}

/// Completes a partial checksum. Sums from `start` to the end of the IP packet (of the frame, if it
/// does not parse). Stores the complement `offset` bytes after `start`, in place of the pseudo
/// header's sum. Takes about 8 ns, plus the sum.
///
/// # Errors
/// Returns [`ChecksumError::OutOfRange`] if the field is not inside the packet, and
/// [`ChecksumError::Truncated`] if the packet is not inside the frame. The frame is unchanged then.
#[inline]
pub fn complete_partial(frame: &mut [u8], start: u16, offset: u16) -> Result<(), ChecksumError> {
    let end = packet_end(frame, start)?;
    let packet = frame.get_mut(start.into()..end).ok_or(ChecksumError::OutOfRange)?;
    let field = usize::from(offset);
    let pseudo = header::<U16>(packet, field).ok_or(ChecksumError::OutOfRange)?.get();
    write(packet, offset, Sum::new().add_u16(pseudo))
}

/// Returns the end of the sum from `start`, which excludes padding. `start` may be deeper than the
/// outer transport header (a tunnel), so that header's length does not apply.
#[inline]
fn packet_end(frame: &[u8], start: u16) -> Result<usize, ChecksumError> {
    let Ok(layers) = Layers::parse(frame) else {
        return Ok(frame.len());
    };
    if layers.truncated {
        return Err(ChecksumError::Truncated);
    }
    match layers.transport_length(frame) {
        Some(length) if layers.transport == start => Ok(usize::from(start) + length),
        _ => Ok((layers.end as usize).min(frame.len())),
    }
}

/// Finds the partial checksum of a frame without metadata, as from veth to an AF_XDP socket. It is
/// a TCP or UDP checksum field that equals the pseudo header's sum and is wrong as a complete
/// checksum. Takes about 8 ns, plus the sum over the packet if the field matches.
///
/// A damaged frame in transit matches by accident once in 65536 cases, and completing it would hide
/// the damage. So call it only for frames from devices of this machine (veth, TAP), not from a
/// wire. It never finds one in fragments, truncated packets, and IPv6 with routing segments left.
#[inline]
#[must_use]
pub fn find_partial(frame: &[u8]) -> Option<Partial> {
    let layers = Layers::parse(frame).ok()?;
    if !matches!(layers.protocol, IpProtocol::TCP | IpProtocol::UDP) {
        return None;
    }
    let covered = Covered::find(frame, &layers).ok()?;
    if covered.field(frame).ok()?.get() != covered.pseudo.fold() {
        return None;
    }
    // A complete checksum may be equal by coincidence; the full sum decides.
    if covered.sum(frame).ok()?.fold() == 0xffff {
        return None;
    }
    Some(Partial { start: layers.transport, offset: covered.offset })
}

/// Replaces the TCP or UDP checksum by a partial one (the pseudo header's sum), for a device that
/// completes it. Takes about 3 ns.
///
/// # Errors
/// Returns the reason why there is no such checksum. The frame is unchanged then.
#[inline]
pub fn make_partial(frame: &mut [u8], layers: &Layers) -> Result<Partial, ChecksumError> {
    if !matches!(layers.protocol, IpProtocol::TCP | IpProtocol::UDP) {
        return Err(ChecksumError::NotCovered);
    }
    let covered = Covered::find(frame, layers)?;
    covered.field_mut(frame)?.set(covered.pseudo.fold());
    Ok(Partial { start: layers.transport, offset: covered.offset })
}
