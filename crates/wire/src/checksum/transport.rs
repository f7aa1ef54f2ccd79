//! Checksums of an IPv4 header and of TCP, UDP, ICMP and ICMPv6: filling in and verification.

use std::fmt;

use zerocopy::byteorder::network_endian::U16;

use super::{Sum, udp};
use crate::{Fragment, IpProtocol, Layers, Tcp, Udp, header, header_mut};

/// Reason why a checksum cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumError {
    /// Frame without TCP, UDP, ICMP or ICMPv6; or without IPv4, for the header checksum.
    NotCovered,
    /// Fragment: the checksum covers the whole packet.
    Fragment,
    /// Frame that contains less than the IP header states.
    Truncated,
    /// IPv6 routing header that hides the final destination, which the checksum covers.
    Routed,
    /// UDP length that does not fit into the IP payload.
    Length,
    /// Checksum field outside the packet.
    OutOfRange,
}

impl fmt::Display for ChecksumError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotCovered => "the frame carries no such checksum",
            Self::Fragment => "a fragment does not hold all that the checksum covers",
            Self::Truncated => "the frame holds less than IP promises",
            Self::Routed => "a routing header hides the destination that the checksum covers",
            Self::Length => "the UDP length does not fit into the packet",
            Self::OutOfRange => "the checksum field does not lie within the packet",
        })
    }
}

impl std::error::Error for ChecksumError {}

/// Range that a transport checksum covers, and the position of its field.
pub(super) struct Covered {
    /// Sum of the pseudo header; zero without one (ICMP).
    pub(super) pseudo: Sum,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Offset of the checksum field from `start`, in bytes.
    pub(super) offset: u16,
}

impl Covered {
    // As in `layers`: the layers stay in registers.
    #[inline(always)]
    pub(super) fn find(frame: &[u8], layers: &Layers) -> Result<Self, ChecksumError> {
        let offset = match layers.protocol {
            IpProtocol::TCP => Tcp::CHECKSUM_OFFSET,
            IpProtocol::UDP => Udp::CHECKSUM_OFFSET,
            IpProtocol::ICMP if layers.is_ipv4() => 2,
            IpProtocol::ICMPV6 if layers.is_ipv6() => 2,
            _ => return Err(ChecksumError::NotCovered),
        };
        if layers.fragment != Fragment::None {
            return Err(ChecksumError::Fragment);
        }
        if layers.truncated {
            return Err(ChecksumError::Truncated);
        }
        if layers.routed {
            return Err(ChecksumError::Routed);
        }
        let length = layers.transport_length(frame).ok_or(ChecksumError::Length)?;
        let pseudo = if let Some(ipv4) = layers.ipv4(frame) {
            if layers.protocol == IpProtocol::ICMP {
                Sum::new()
            } else {
                // IPv4's total length limits it to 16 bits.
                let (source, destination) = (ipv4.source, ipv4.destination);
                Sum::pseudo_ipv4(source, destination, layers.protocol, length as u16)
            }
        } else {
            let ipv6 = layers.ipv6(frame).ok_or(ChecksumError::NotCovered)?;
            let (source, destination) = (&ipv6.source, &ipv6.destination);
            Sum::pseudo_ipv6(source, destination, layers.protocol, length as u32)
        };
        let start = usize::from(layers.transport);
        Ok(Self { pseudo, start, end: start + length, offset })
    }

    /// Returns the sum over pseudo header, header and data, including the checksum field.
    #[inline]
    pub(super) fn sum(&self, frame: &[u8]) -> Result<Sum, ChecksumError> {
        let data = frame.get(self.start..self.end).ok_or(ChecksumError::Truncated)?;
        Ok(self.pseudo.add_bytes(data))
    }

    #[inline]
    pub(super) fn field<'a>(&self, frame: &'a [u8]) -> Result<&'a U16, ChecksumError> {
        let field = self.start + usize::from(self.offset);
        header(frame, field).ok_or(ChecksumError::OutOfRange)
    }

    #[inline]
    pub(super) fn field_mut<'a>(&self, frame: &'a mut [u8]) -> Result<&'a mut U16, ChecksumError> {
        let field = self.start + usize::from(self.offset);
        header_mut(frame, field).ok_or(ChecksumError::OutOfRange)
    }
}

/// Computes and writes the transport checksum of the frame that was parsed into `layers`. It covers
/// the IP packet without the frame's padding.
///
/// # Errors
/// Returns the reason why there is nothing to compute. The frame is unchanged then.
#[inline]
pub fn fill_transport(frame: &mut [u8], layers: &Layers) -> Result<(), ChecksumError> {
    let covered = Covered::find(frame, layers)?;
    let packet = frame.get_mut(covered.start..covered.end).ok_or(ChecksumError::Truncated)?;
    write(packet, covered.offset, covered.pseudo)
}

/// Clears the checksum field `offset` bytes into `packet`, continues the sum `pseudo` over the
/// packet and writes the field.
#[inline]
pub(super) fn write(packet: &mut [u8], offset: u16, pseudo: Sum) -> Result<(), ChecksumError> {
    let field = usize::from(offset);
    header_mut::<U16>(packet, field).ok_or(ChecksumError::OutOfRange)?.set(0);
    let checksum = pseudo.add_bytes(packet).checksum();
    let checksum = if offset == Udp::CHECKSUM_OFFSET { udp(checksum) } else { checksum };
    header_mut::<U16>(packet, field).ok_or(ChecksumError::OutOfRange)?.set(checksum);
    Ok(())
}

/// Returns true if the transport checksum is correct. UDP without a checksum is correct over IPv4
/// and wrong over IPv6 (RFC 8200 clause 8.1; RFC 6935 lets tunnels decide otherwise).
///
/// # Errors
/// Returns the reason why the checksum cannot be verified.
#[inline]
pub fn verify_transport(frame: &[u8], layers: &Layers) -> Result<bool, ChecksumError> {
    let covered = Covered::find(frame, layers)?;
    if layers.protocol == IpProtocol::UDP && covered.field(frame)?.get() == 0 {
        return Ok(layers.is_ipv4());
    }
    Ok(covered.sum(frame)?.fold() == 0xffff)
}

/// Computes and writes the checksum of the IPv4 header, including options.
///
/// # Errors
/// Returns an error if the frame that was parsed into `layers` does not carry IPv4.
#[inline]
pub fn fill_ipv4_header(frame: &mut [u8], layers: &Layers) -> Result<(), ChecksumError> {
    let bytes = ipv4_bytes(layers)?;
    let ipv4 = frame.get_mut(bytes).ok_or(ChecksumError::Truncated)?;
    write(ipv4, 10, Sum::new())
}

/// Returns true if the checksum of the IPv4 header is correct.
///
/// # Errors
/// Returns an error if the frame that was parsed into `layers` does not carry IPv4.
#[inline]
pub fn verify_ipv4_header(frame: &[u8], layers: &Layers) -> Result<bool, ChecksumError> {
    let ipv4 = frame.get(ipv4_bytes(layers)?).ok_or(ChecksumError::Truncated)?;
    Ok(Sum::new().add_bytes(ipv4).fold() == 0xffff)
}

#[inline]
fn ipv4_bytes(layers: &Layers) -> Result<std::ops::Range<usize>, ChecksumError> {
    if !layers.is_ipv4() {
        return Err(ChecksumError::NotCovered);
    }
    Ok(layers.network.into()..layers.transport.into())
}
