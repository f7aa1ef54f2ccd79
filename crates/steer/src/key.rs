//! Lane key: the part of a frame that selects one of 256 shards, for `lane-by`.
//!
//! The result depends on the bytes of the frame only, so every lane, and a device that computes it
//! for a lane, gets the same one.

use crate::rules::{GTP_U_PORT, IPV4, IPV6, TCP, UDP, VLAN};

/// Maximum number of VLAN tags that are skipped.
const MAX_TAGS: usize = 2;
/// Maximum number of IPv6 extension headers that are skipped.
const MAX_EXTENSIONS: usize = 6;
/// IPv6 next header: hop-by-hop options, routing, destination options (RFC 8200 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// IPv6 next header: fragment (RFC 8200 4.5).
const FRAGMENT: u8 = 44;
/// IP protocol number of SCTP (RFC 9260), whose ports are at the offsets of those of TCP and UDP.
const SCTP: u8 = 132;

/// Key by which frames are assigned to lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKey {
    /// IP addresses, protocol, and the ports of TCP, UDP and SCTP. Both directions of a flow are
    /// equal.
    Flow,
    /// Value of one field.
    Field {
        /// Field of the frame.
        field: KeyField,
        /// Number of the field's bit, counted from the least significant, at which the eight bits
        /// of the shard begin. `None` if the field contains no shard; the shard is then a hash of
        /// the field.
        shard_at: Option<u32>,
    },
}

/// Field of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyField {
    /// GTP-U tunnel endpoint identifier (3GPP TS 29.281 5.1), on UDP port 2152.
    GtpTeid,
    /// IPv4 source address, or the upper 64 bits of the IPv6 one.
    SourceAddress,
    /// IPv4 destination address, or the upper 64 bits of the IPv6 one.
    DestinationAddress,
    /// Bytes of the frame as a big-endian number.
    Bytes {
        /// Offset of the first byte, from the Ethernet header on.
        offset: u16,
        /// Number of bytes; at most 16 are used.
        length: u8,
    },
}

/// Shard of a frame, or the reason why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// Shard to which the frame belongs.
    Shard(u8),
    /// Frame without this key.
    None,
    /// Fragment of an IP packet whose other fragments may lack the key.
    Fragment,
}

impl KeyField {
    /// Returns the minimum number of bits of the field; an IPv4 address has 32.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::GtpTeid | Self::SourceAddress | Self::DestinationAddress => 32,
            Self::Bytes { length, .. } => 8 * u32::from(length.min(16)),
        }
    }
}

impl LaneKey {
    /// Returns the shard of a frame, which begins at the Ethernet header. Up to two VLAN tags are
    /// skipped.
    ///
    /// By ports or TEID a fragment is a [`Fragment`](Keyed::Fragment), even the first or only one,
    /// because not every fragment has them. By addresses it has a shard. A flow whose ports are cut
    /// off, or follow more than six IPv6 extension headers, is hashed by addresses and protocol.
    /// Neither allocates nor panics.
    #[inline]
    #[must_use]
    pub fn of(&self, frame: &[u8]) -> Keyed {
        let (field, shard_at) = match *self {
            Self::Flow => return flow(frame),
            Self::Field { field, shard_at } => (field, shard_at),
        };
        let value = match field {
            KeyField::Bytes { .. } if is_fragment(frame) => return Keyed::Fragment,
            KeyField::Bytes { offset, length } => {
                number(frame, offset.into(), length.min(16).into())
            }
            KeyField::GtpTeid => match gtp_teid(frame) {
                Ok(teid) => teid.map(u128::from),
                Err(Fragmented) => return Keyed::Fragment,
            },
            KeyField::SourceAddress => Network::read(frame).map(|it| it.source.prefix()),
            KeyField::DestinationAddress => Network::read(frame).map(|it| it.destination.prefix()),
        };
        match (value, shard_at) {
            (None, _) => Keyed::None,
            (Some(value), Some(bit)) => Keyed::Shard(value.checked_shr(bit).unwrap_or(0) as u8),
            (Some(value), None) => {
                Keyed::Shard(shard(fold(value as u64 ^ SEEDS[0], (value >> 64) as u64 ^ SEEDS[1])))
            }
        }
    }
}

/// Marker of a packet that is a fragment.
struct Fragmented;

/// IP header, as far as keys need it.
#[derive(Clone, Copy)]
struct Network {
    source: Address,
    destination: Address,
    protocol: u8,
    fragment: bool,
    /// Offset of the transport header, or `None` if it was not found.
    transport: Option<usize>,
}

/// IP address in network byte order; IPv4 in `upper`.
#[derive(Clone, Copy)]
struct Address {
    upper: u64,
    lower: u64,
}

impl Address {
    fn v4(octets: [u8; 4]) -> Self {
        Self { upper: u32::from_be_bytes(octets).into(), lower: 0 }
    }

    fn v6(octets: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(octets);
        Self { upper: (number >> 64) as u64, lower: number as u64 }
    }

    fn prefix(self) -> u128 {
        self.upper.into()
    }
}

impl Network {
    /// Reads the header. Returns `None` if the frame is not IP or ends before the fixed header
    /// does.
    #[inline]
    fn read(frame: &[u8]) -> Option<Self> {
        let mut offset = 12;
        let mut ethertype = u16::from_be_bytes(bytes(frame, offset)?);
        for _ in 0..MAX_TAGS {
            if !VLAN.contains(&ethertype) {
                break;
            }
            offset += 4;
            ethertype = u16::from_be_bytes(bytes(frame, offset)?);
        }
        match ethertype {
            IPV4 => Self::ipv4(frame, offset + 2),
            IPV6 => Self::ipv6(frame, offset + 2),
            _ => None,
        }
    }

    /// Reads an IPv4 header (RFC 791 3.1).
    #[inline]
    fn ipv4(frame: &[u8], offset: usize) -> Option<Self> {
        let header: [u8; 20] = bytes(frame, offset)?;
        let length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || length < header.len() {
            return None;
        }
        Some(Self {
            source: Address::v4(bytes(&header, 12)?),
            destination: Address::v4(bytes(&header, 16)?),
            protocol: header[9],
            // More-fragments flag, or an offset.
            fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
            transport: Some(offset + length),
        })
    }

    /// Reads an IPv6 header and its extension headers (RFC 8200 3 and 4).
    fn ipv6(frame: &[u8], offset: usize) -> Option<Self> {
        let header: [u8; 40] = bytes(frame, offset)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let (mut protocol, mut at) = (header[6], Some(offset + header.len()));
        for _ in 0..MAX_EXTENSIONS {
            let (true, Some(start)) = (EXTENSIONS.contains(&protocol), at) else { break };
            let extension: Option<[u8; 2]> = bytes(frame, start);
            at = extension.map(|[_, length]| start + (usize::from(length) + 1) * 8);
            protocol = extension.map_or(protocol, |[next, _]| next);
        }
        Some(Self {
            source: Address::v6(bytes(&header, 8)?),
            destination: Address::v6(bytes(&header, 24)?),
            protocol,
            fragment: protocol == FRAGMENT,
            transport: at.filter(|_| !EXTENSIONS.contains(&protocol)),
        })
    }
}

#[inline]
fn flow(frame: &[u8]) -> Keyed {
    let Some(network) = Network::read(frame) else { return Keyed::None };
    if network.fragment {
        return Keyed::Fragment;
    }
    let ports: Option<[u8; 4]> = match network.protocol {
        TCP | UDP | SCTP => network.transport.and_then(|at| bytes(frame, at)),
        _ => None,
    };
    let [a, b, c, d] = ports.unwrap_or_default();
    let one = end(network.source, u16::from_be_bytes([a, b]));
    let other = end(network.destination, u16::from_be_bytes([c, d]));
    // Sum and difference are the same in both directions.
    let protocol = u64::from(network.protocol);
    Keyed::Shard(shard(fold(one.wrapping_add(other) ^ protocol, (one ^ other) ^ SEEDS[2])))
}

/// Returns one end of a flow as a number.
#[inline]
fn end(address: Address, port: u16) -> u64 {
    fold(address.upper ^ SEEDS[0], address.lower ^ u64::from(port).rotate_left(40) ^ SEEDS[1])
}

/// Returns the TEID, or `Err` if the frame is a fragment.
fn gtp_teid(frame: &[u8]) -> Result<Option<u32>, Fragmented> {
    let Some(network) = Network::read(frame) else { return Ok(None) };
    if network.fragment {
        return Err(Fragmented);
    }
    let teid = || {
        let at = network.transport.filter(|_| network.protocol == UDP)?;
        let header: [u8; 16] = bytes(frame, at)?;
        // Version 1 in the upper three bits, protocol type GTP in the fourth.
        let is_gtp =
            u16::from_be_bytes([header[2], header[3]]) == GTP_U_PORT && header[8] >> 4 == 0b0011;
        is_gtp.then(|| u32::from_be_bytes([header[12], header[13], header[14], header[15]]))
    };
    Ok(teid())
}

fn is_fragment(frame: &[u8]) -> bool {
    Network::read(frame).is_some_and(|network| network.fragment)
}

fn number(frame: &[u8], offset: usize, length: usize) -> Option<u128> {
    let octets = frame.get(offset..offset + length)?;
    Some(octets.iter().fold(0, |number, octet| number << 8 | u128::from(*octet)))
}

/// Arbitrary odd constants: digits of pi.
const SEEDS: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// Returns the folded product of two words. Every bit depends on all bits of both.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn shard(hash: u64) -> u8 {
    // Hash again: folded products of similar words are similar in their upper bits.
    (fold(hash, 0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

/// Returns `N` bytes at `offset`, if the frame has them.
#[inline]
fn bytes<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
