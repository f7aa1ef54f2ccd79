//! The checksums of an IPv4 header and of TCP, UDP, ICMP and ICMPv6, filled in and verified.

use std::fmt;

use zerocopy::byteorder::network_endian::U16;

use super::{Sum, udp};
use crate::{Fragment, IpProtocol, Layers, Tcp, Udp, header, header_mut};

/// Why a checksum cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumError {
    /// The frame carries none of TCP, UDP, ICMP and ICMPv6; or not IPv4, where its header is meant.
    NotCovered,
    /// A fragment: the checksum covers the whole packet.
    Fragment,
    /// The frame holds less than IP promises.
    Truncated,
    /// An IPv6 routing header hides the final destination, which the checksum covers.
    Routed,
    /// UDP's length does not fit into what IP carries.
    Length,
    /// The checksum field does not lie within the packet.
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

/// What a transport checksum covers, and where it is kept.
pub(super) struct Covered {
    /// The sum of the pseudo header; zero where there is none (ICMP).
    pub(super) pseudo: Sum,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Of the checksum field from `start`.
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
                // IPv4's total length bounds it to 16 bits.
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

    /// The sum over pseudo header, header and data, the checksum field as it is.
    #[inline]
    pub(super) fn sum(&self, frame: &[u8]) -> Result<Sum, ChecksumError> {
        let data = frame.get(self.start..self.end).ok_or(ChecksumError::Truncated)?;
        Ok(self.pseudo.add_bytes(data))
    }

    #[inline]
    pub(super) fn field<'a>(&self, frame: &'a [u8]) -> Result<&'a U16, ChecksumError> {
        let place = self.start + usize::from(self.offset);
        header(frame, place).ok_or(ChecksumError::OutOfRange)
    }

    #[inline]
    pub(super) fn field_mut<'a>(&self, frame: &'a mut [u8]) -> Result<&'a mut U16, ChecksumError> {
        let place = self.start + usize::from(self.offset);
        header_mut(frame, place).ok_or(ChecksumError::OutOfRange)
    }
}

/// Computes the checksum of the transport header of the frame that was parsed into `layers` and
/// writes it, over the IP packet without the frame's padding.
///
/// # Errors
/// Says why there is nothing to compute; the frame is then unchanged.
#[inline]
pub fn fill_transport(frame: &mut [u8], layers: &Layers) -> Result<(), ChecksumError> {
    let covered = Covered::find(frame, layers)?;
    let packet = frame.get_mut(covered.start..covered.end).ok_or(ChecksumError::Truncated)?;
    write(packet, covered.offset, covered.pseudo)
}

/// Clears the checksum field `offset` bytes into `packet`, sums on from `pseudo` and writes the
/// field.
#[inline]
pub(super) fn write(packet: &mut [u8], offset: u16, pseudo: Sum) -> Result<(), ChecksumError> {
    let place = usize::from(offset);
    header_mut::<U16>(packet, place).ok_or(ChecksumError::OutOfRange)?.set(0);
    let checksum = pseudo.add_bytes(packet).checksum();
    let checksum = if offset == Udp::CHECKSUM_OFFSET { udp(checksum) } else { checksum };
    header_mut::<U16>(packet, place).ok_or(ChecksumError::OutOfRange)?.set(checksum);
    Ok(())
}

/// Whether the checksum of the transport header is right. UDP over IPv4 without a checksum is;
/// over IPv6 it is not (RFC 8200 clause 8.1; RFC 6935 lets tunnels decide otherwise).
///
/// # Errors
/// Says why the frame does not tell.
#[inline]
pub fn verify_transport(frame: &[u8], layers: &Layers) -> Result<bool, ChecksumError> {
    let covered = Covered::find(frame, layers)?;
    if layers.protocol == IpProtocol::UDP && covered.field(frame)?.get() == 0 {
        return Ok(layers.is_ipv4());
    }
    Ok(covered.sum(frame)?.fold() == 0xffff)
}

/// Computes the checksum of the IPv4 header, options included, and writes it.
///
/// # Errors
/// The frame that was parsed into `layers` does not carry IPv4.
#[inline]
pub fn fill_ipv4_header(frame: &mut [u8], layers: &Layers) -> Result<(), ChecksumError> {
    let bytes = ipv4_bytes(layers)?;
    let ipv4 = frame.get_mut(bytes).ok_or(ChecksumError::Truncated)?;
    write(ipv4, 10, Sum::new())
}

/// Whether the checksum of the IPv4 header is right.
///
/// # Errors
/// The frame that was parsed into `layers` does not carry IPv4.
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
