//! Outer fragments as they arrive, and the identity of their packet.

use fastlane::wire::{
    EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Ipv6Extension, Ipv6Fragment, Udp, checksum, header,
};

use super::{BLOCK, MAX_FRONT, MAX_PAYLOAD};

/// Maximum number of IPv6 extension headers in front of a fragment header.
const MAX_EXTENSIONS: usize = 4;

/// Identity of a packet whose fragments arrive (RFC 791 clause 3.2, RFC 8200 clause 4.5). All are
/// UDP to a local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketId {
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) identification: u32,
    pub(super) is_v6: bool,
}

impl PacketId {
    /// Returns a hash.
    pub(super) fn hash(&self) -> u64 {
        let both = self.source ^ self.destination.rotate_left(64 + 16);
        let mixed = u64::from(self.identification) << 32
            ^ (both as u64).rotate_left(17)
            ^ ((both >> 64) as u64).rotate_left(41);
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }
}

/// A fragment in its frame. Offsets are in octets.
pub(super) struct OuterFragment<'a> {
    pub(super) id: PacketId,
    /// Offset of its payload in that of the packet.
    pub(super) offset: usize,
    pub(super) is_last: bool,
    pub(super) payload: &'a [u8],
    /// Headers in front of the fragment, as the whole packet has them but for lengths and checksum.
    pub(super) front: &'a [u8],
    /// Offset in `front` of the next header field that names the fragment header.
    pub(super) next_header: Option<usize>,
    /// Explicit congestion notification (RFC 3168).
    pub(super) ecn: u8,
}

impl<'a> OuterFragment<'a> {
    /// Parses a fragment; `None` if its headers are invalid.
    pub(super) fn read(frame: &'a [u8]) -> Option<Self> {
        match header::<Ethernet>(frame, 0)?.ethertype.get() {
            EtherType::IPV4 => Self::read4(frame),
            _ => Self::read6(frame),
        }
    }

    fn read4(frame: &'a [u8]) -> Option<Self> {
        let ip: &Ipv4 = header(frame, Ethernet::LENGTH)?;
        let start = Ethernet::LENGTH + ip.header_length();
        let end = Ethernet::LENGTH + usize::from(ip.total_length.get());
        let front = frame.get(..start)?;
        let is_sound = ip.version() == 4
            && ip.header_length() >= Ipv4::LENGTH
            && checksum::checksum(front.get(Ethernet::LENGTH..)?) == 0;
        let word = |octets: [u8; 4]| u128::from(u32::from_be_bytes(octets));
        is_sound.then_some(Self {
            id: PacketId {
                source: word(ip.source),
                destination: word(ip.destination),
                // Packets of different protocols may have equal ones.
                identification: u32::from(ip.protocol) << 16 | u32::from(ip.identification.get()),
                is_v6: false,
            },
            offset: ip.fragment_offset().into(),
            is_last: !ip.more_fragments(),
            payload: frame.get(start..end)?,
            front,
            next_header: None,
            ecn: ip.type_of_service & 3,
        })
    }

    fn read6(frame: &'a [u8]) -> Option<Self> {
        let ip: &Ipv6 = header(frame, Ethernet::LENGTH)?;
        let end = Ethernet::LENGTH + Ipv6::LENGTH + usize::from(ip.payload_length.get());
        let (next_header, at) = fragment_header(frame)?;
        let fragment: &Ipv6Fragment = header(frame, at)?;
        (fragment.next_header == IpProtocol::UDP).then_some(())?;
        Some(Self {
            id: PacketId {
                source: u128::from_be_bytes(ip.source),
                destination: u128::from_be_bytes(ip.destination),
                identification: fragment.identification.get(),
                is_v6: true,
            },
            offset: fragment.fragment_offset().into(),
            is_last: !fragment.more_fragments(),
            payload: frame.get(at + Ipv6Fragment::LENGTH..end)?,
            front: frame.get(..at)?,
            next_header: Some(next_header),
            ecn: ip.traffic_class() & 3,
        })
    }

    /// Returns the UDP destination port, which only the first fragment has.
    pub(super) fn port(&self) -> Option<u16> {
        header::<Udp>(self.payload, 0).map(|udp| udp.destination_port.get())
    }

    /// Returns the end of its payload in that of the packet, if the fragment is sound.
    pub(super) fn end(&self) -> Option<usize> {
        let end = self.offset + self.payload.len();
        let is_sound = !self.payload.is_empty()
            && end <= MAX_PAYLOAD
            && self.front.len() <= MAX_FRONT
            && (self.is_last || self.payload.len().is_multiple_of(BLOCK));
        is_sound.then_some(end)
    }
}

/// Returns the offset of the next header field that names the fragment header, and that of the
/// fragment header.
fn fragment_header(frame: &[u8]) -> Option<(usize, usize)> {
    const NEXT_HEADER: usize = 6;
    let mut field = Ethernet::LENGTH + NEXT_HEADER;
    let mut at = Ethernet::LENGTH + Ipv6::LENGTH;
    for _ in 0..MAX_EXTENSIONS {
        match *frame.get(field)? {
            IpProtocol::FRAGMENT => return Some((field, at)),
            IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS => {
                let extension: &Ipv6Extension = header(frame, at)?;
                (field, at) = (at, at + extension.header_length());
            }
            _ => return None,
        }
    }
    None
}

/// Returns the shard of a fragment: that of all fragments of its packet.
pub(crate) fn shard(frame: &[u8]) -> u8 {
    OuterFragment::read(frame).map_or(0, |fragment| fragment.id.hash() as u8)
}
