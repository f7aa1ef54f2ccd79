//! Partial checksums: Linux leaves the checksum of what it sends to the device. On veth and TAP
//! there is no device, and the frame arrives with only the pseudo header's sum in the field.

use zerocopy::byteorder::network_endian::U16;

use super::transport::{Covered, write};
use super::{ChecksumError, Sum};
use crate::{IpProtocol, Layers, header};

/// Where a partial checksum is to be completed, as `virtio_net_hdr` says it (virtio 1.2 clause
/// 5.1.6, `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Where the sum begins, in bytes from the start of the frame (`csum_start`).
    pub start: u16,
    /// Where the checksum field lies, in bytes from `start` (`csum_offset`).
    pub offset: u16,
}

/// Completes a partial checksum: sums from `start` to the end of the IP packet (of the frame, if it
/// does not parse) and stores the complement `offset` bytes behind `start`, where the sum of the
/// pseudo header lies now. About 8 ns and the sum.
///
/// # Errors
/// [`ChecksumError::OutOfRange`] if the field does not lie within the packet, and
/// [`ChecksumError::Truncated`] if the packet does not lie within the frame; the frame is then
/// unchanged.
#[inline]
pub fn complete_partial(frame: &mut [u8], start: u16, offset: u16) -> Result<(), ChecksumError> {
    let end = packet_end(frame, start)?;
    let packet = frame.get_mut(start.into()..end).ok_or(ChecksumError::OutOfRange)?;
    let place = usize::from(offset);
    let pseudo = header::<U16>(packet, place).ok_or(ChecksumError::OutOfRange)?.get();
    write(packet, offset, Sum::new().add_u16(pseudo))
}

/// Where the sum from `start` ends: with the packet, since padding is not covered. `start` may lie
/// deeper than the outer transport header (a tunnel), whose own length then says nothing.
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

/// The partial checksum of a frame that came without a word about it, as from veth to an AF_XDP
/// socket: TCP or UDP whose checksum field is the sum of the pseudo header, and whose checksum is
/// wrong as it stands. About 8 ns, and the sum over the packet if the field fits.
///
/// A frame in transit looks like one by accident once in 65536 damaged packets, and is then sent
/// on with a checksum that hides the damage; so ask only of frames from this machine's own devices
/// (veth, TAP), not from a wire. Fragments, truncated packets and IPv6 with routing segments left
/// are never found.
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
    // A complete checksum may coincide: the sum over all says so.
    if covered.sum(frame).ok()?.fold() == 0xffff {
        return None;
    }
    Some(Partial { start: layers.transport, offset: covered.offset })
}

/// Makes the TCP or UDP checksum a partial one, for a device that completes it: the field becomes
/// the sum of the pseudo header. About 3 ns.
///
/// # Errors
/// Says why there is no such checksum; the frame is then unchanged.
#[inline]
pub fn make_partial(frame: &mut [u8], layers: &Layers) -> Result<Partial, ChecksumError> {
    if !matches!(layers.protocol, IpProtocol::TCP | IpProtocol::UDP) {
        return Err(ChecksumError::NotCovered);
    }
    let covered = Covered::find(frame, layers)?;
    covered.field_mut(frame)?.set(covered.pseudo.fold());
    Ok(Partial { start: layers.transport, offset: covered.offset })
}
