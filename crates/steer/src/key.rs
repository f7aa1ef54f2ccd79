//! The lane key: which of 256 shards a frame belongs to, for `lane-by`.
//!
//! Everything here is a function of the bytes alone, so that every lane, and whatever device does
//! it in a lane's stead, comes to the same answer.

use crate::rule::{GTP_U_PORT, IPV4, IPV6, TCP, UDP, VLAN};

/// VLAN tags that are stepped over.
const MAX_TAGS: usize = 2;
/// IPv6 extension headers that are stepped over.
const MAX_EXTENSIONS: usize = 6;
/// IPv6 next header: hop-by-hop options, routing, destination options (RFC 8200 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// IPv6 next header: fragment (RFC 8200 4.5).
const FRAGMENT: u8 = 44;
/// IP protocol number of SCTP (RFC 9260), whose ports lie where those of TCP and UDP do.
const SCTP: u8 = 132;

/// What says whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKey {
    /// IP addresses, protocol, and the ports of TCP, UDP and SCTP; the same in both directions.
    Flow,
    /// A field.
    Field {
        /// Which.
        field: KeyField,
        /// The bit of the field, counted from the least significant, at which the eight bits of the
        /// shard begin; `None` when it has no shard in it, which then is a hash of the field.
        shard_at: Option<u32>,
    },
}

/// A field of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyField {
    /// The tunnel endpoint identifier of GTP-U (3GPP TS 29.281 5.1), behind UDP port 2152.
    GtpTeid,
    /// The IPv4 source address, or the upper 64 bits of the IPv6 one.
    SourceAddress,
    /// The IPv4 destination address, or the upper 64 bits of the IPv6 one.
    DestinationAddress,
    /// Bytes of the frame, from the Ethernet header on, as a number: the first byte is the most
    /// significant.
    Bytes {
        /// Where they begin.
        offset: u16,
        /// How many: at most 16 count.
        length: u8,
    },
}

/// What the key of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// The frame belongs to this shard.
    Shard(u8),
    /// It has no such key.
    None,
    /// It is a fragment of an IP packet, and not every fragment of one has the key.
    Fragment,
}

impl KeyField {
    /// How many bits the field has at least: an address of IPv4 has 32.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::GtpTeid | Self::SourceAddress | Self::DestinationAddress => 32,
            Self::Bytes { length, .. } => 8 * u32::from(length.min(16)),
        }
    }
}

impl LaneKey {
    /// The shard of a frame, which begins at the Ethernet header; up to two VLAN tags are stepped
    /// over.
    ///
    /// A fragment (the first too, and one that is alone) has no ports and no TEID that could be
    /// relied on, so it is a [`Fragment`](Keyed::Fragment); addresses are in each, so by them it
    /// has a shard. A flow whose ports are cut off, or hidden behind more than six IPv6 extension
    /// headers, goes by addresses and protocol. Neither allocates nor panics.
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

/// The packet is a fragment.
struct Fragmented;

/// An IP header as far as keys need it.
#[derive(Clone, Copy)]
struct Network {
    source: Address,
    destination: Address,
    protocol: u8,
    fragment: bool,
    /// Where the transport header begins; `None` when that could not be found.
    transport: Option<usize>,
}

/// An IP address in network byte order; IPv4 in `upper`.
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
    /// `None` when the frame is not IP, or ends before the fixed header does.
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

    /// RFC 791 3.1.
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
            // More fragments, or an offset.
            fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
            transport: Some(offset + length),
        })
    }

    /// RFC 8200 3 and 4.
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
    // Sum and difference do not tell which end is which.
    let protocol = u64::from(network.protocol);
    Keyed::Shard(shard(fold(one.wrapping_add(other) ^ protocol, (one ^ other) ^ SEEDS[2])))
}

/// One end of a flow, as a number.
#[inline]
fn end(address: Address, port: u16) -> u64 {
    fold(address.upper ^ SEEDS[0], address.lower ^ u64::from(port).rotate_left(40) ^ SEEDS[1])
}

/// `Err` when the frame is a fragment.
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

/// Digits of pi, as good as any.
const SEEDS: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// The product of two words, folded: every bit of it depends on all of both.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn shard(hash: u64) -> u8 {
    // Once more: a folded product of nearly alike words is nearly alike in its upper bits.
    (fold(hash, 0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

/// `N` octets at `offset`, when the frame has them.
#[inline]
fn bytes<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
