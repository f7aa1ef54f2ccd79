//! The part of a packet that NAT translates: where its port or identifier is, and how it is
//! replaced together with the address and the checksums (RFC 3022, RFC 5508, RFC 1624).

use fastlane::wire::checksum::{self, Difference, update_u16};
use fastlane::wire::{Icmp, IpProtocol, Ipv4, Tcp, U16, Udp, header, header_mut};

use super::segment::{Endpoint, Segment, write_tcp, write_udp};
use super::side::Side;
use crate::rules::layout::nat_tables::Protocol;

/// Offset of the identifier in an ICMP query.
const IDENTIFIER: usize = 4;
/// Offset of the checksum field of UDP.
const UDP_CHECKSUM: usize = 6;
/// ICMP types without a constant in `wire` (RFC 792, RFC 950).
const SOURCE_QUENCH: u8 = 4;
const TIMESTAMP: u8 = 13;
const TIMESTAMP_REPLY: u8 = 14;
const INFORMATION: u8 = 15;
const INFORMATION_REPLY: u8 = 16;
const ADDRESS_MASK: u8 = 17;
const ADDRESS_MASK_REPLY: u8 = 18;

/// Reason why a packet has no port or identifier to translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// A header is truncated or invalid.
    Malformed,
    /// The protocol, or the kind of ICMP message, is not translated.
    Protocol,
    /// A later fragment, which has no port.
    Fragment,
}

/// Field of the port or identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// In the transport header of a packet without IP options.
    Plain,
    /// In the transport header of another packet.
    Transport,
    /// Identifier of an ICMP query.
    Query,
    /// In the packet that an ICMP error quotes: offset of its header, and of the port.
    Quoted { ip: u16, port: u16 },
}

/// Translated part of any packet, with what its mapping depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carrier {
    /// Part that its mapping depends on.
    pub(super) segment: Segment,
    side: Side,
    field: Field,
    /// Offset of the transport header.
    transport: u16,
}

impl Carrier {
    /// Finds what is translated on a side of the IPv4 packet at the start of `bytes`.
    ///
    /// # Errors
    /// Returns the reason if there is nothing to translate.
    #[inline(always)]
    pub(super) fn read(bytes: &[u8], side: Side) -> Result<Self, Unreadable> {
        match Segment::read_plain(bytes, side) {
            Some(segment) => Ok(Self { segment, side, field: Field::Plain, transport: 0 }),
            None => Self::read_other(bytes, side),
        }
    }

    /// Finds what is translated in a packet that is not plain.
    #[inline(never)]
    fn read_other(bytes: &[u8], side: Side) -> Result<Self, Unreadable> {
        let ip: &Ipv4 = header(bytes, 0).ok_or(Unreadable::Malformed)?;
        let (start, total) = (ip.header_length(), usize::from(ip.total_length.get()));
        let bytes = bytes.get(..total).ok_or(Unreadable::Malformed)?;
        if start < Ipv4::LENGTH || ip.version() != 4 {
            return Err(Unreadable::Malformed);
        }
        if ip.fragment_offset() != 0 {
            return Err(Unreadable::Fragment);
        }
        let of = |segment, field| Self { segment, side, field, transport: start as u16 };
        match ip.protocol {
            IpProtocol::UDP => {
                let udp: &Udp = header(bytes, start).ok_or(Unreadable::Malformed)?;
                let port = side.of(udp.source_port, udp.destination_port).get();
                Ok(of(Segment::new(Protocol::Udp, port), Field::Transport))
            }
            IpProtocol::TCP => {
                let tcp: &Tcp = header(bytes, start).ok_or(Unreadable::Malformed)?;
                Ok(of(Segment::of_tcp(tcp, total - start, side), Field::Transport))
            }
            IpProtocol::ICMP => {
                let (protocol, port, field) = icmp(bytes, start, side)?;
                Ok(of(Segment::new(protocol, port), field))
            }
            _ => Err(Unreadable::Protocol),
        }
    }

    /// Returns true for an ICMP error, which neither makes nor refreshes a mapping.
    #[inline]
    pub(super) const fn is_error(&self) -> bool {
        matches!(self.field, Field::Quoted { .. })
    }

    /// Replaces address and port in the packet from which it was read, with all checksums.
    #[inline(always)]
    pub(super) fn write(&self, bytes: &mut [u8], new: Endpoint) {
        match self.field {
            Field::Plain => self.segment.write_plain(bytes, self.side, new),
            _ => self.write_other(bytes, new),
        }
    }

    /// Replaces address and port in a packet that is not plain.
    #[inline(never)]
    fn write_other(&self, bytes: &mut [u8], Endpoint { address, port }: Endpoint) {
        let Some(ip) = header_mut::<Ipv4>(bytes, 0) else { return };
        let change = Difference::of_u32(self.side.address_of(ip), address);
        ip.header_checksum.set(change.update(ip.header_checksum.get()));
        *self.side.address_mut(ip) = address.to_be_bytes();
        let start = usize::from(self.transport);
        let change = change.and(Difference::of_u16(self.segment.port, port));
        match (self.field, self.segment.protocol) {
            (Field::Plain | Field::Transport, Protocol::Udp) => {
                let Some(udp) = header_mut(bytes, start) else { return };
                write_udp(udp, self.side, port, change);
            }
            (Field::Plain | Field::Transport, _) => {
                let Some(tcp) = header_mut(bytes, start) else { return };
                write_tcp(tcp, self.side, port, change);
            }
            (Field::Query, _) => self.write_query(bytes, port),
            (Field::Quoted { ip, port: at }, _) => {
                self.write_quoted(bytes, [ip, at].map(usize::from), address, port);
            }
        }
    }

    /// Replaces the identifier of an ICMP query.
    #[inline(never)]
    fn write_query(&self, bytes: &mut [u8], port: u16) {
        let Some(icmp) = header_mut::<Icmp>(bytes, self.transport.into()) else { return };
        // ICMP has no pseudo header.
        icmp.checksum.set(update_u16(icmp.checksum.get(), self.segment.port, port));
        let sequence = icmp.rest.get() & 0xffff;
        icmp.rest.set(u32::from(port) << 16 | sequence);
    }

    /// Replaces address and port in a quoted packet, with the checksums there as far as they are
    /// quoted, and the checksum of the error.
    #[cold]
    fn write_quoted(&self, bytes: &mut [u8], [ip, at]: [usize; 2], address: u32, port: u16) {
        let side = self.side.quoted();
        let mut all = Difference::default();
        let address = replace(bytes, ip + side.address(), address.to_be_bytes());
        all = all.and(address);
        if let Some(quoted) = header_mut::<Ipv4>(bytes, ip) {
            let old = quoted.header_checksum.get();
            quoted.header_checksum.set(address.update(old));
            let new = quoted.header_checksum.get();
            all = all.and(Difference::between(&old.to_be_bytes(), &new.to_be_bytes()));
        }
        let port = replace(bytes, at, port.to_be_bytes());
        all = all.and(port);
        let transport =
            at - if self.segment.protocol == Protocol::Icmp { IDENTIFIER } else { side.port() };
        let (field, difference) = match self.segment.protocol {
            Protocol::Udp => (transport + UDP_CHECKSUM, address.and(port)),
            Protocol::Tcp => (transport + usize::from(Tcp::CHECKSUM_OFFSET), address.and(port)),
            Protocol::Icmp => (transport + 2, port),
        };
        if let Some(sum) = header::<U16>(bytes, field).map(|sum| sum.get())
            && !(self.segment.protocol == Protocol::Udp && sum == 0)
        {
            let new = match self.segment.protocol {
                Protocol::Udp => checksum::udp(difference.update(sum)),
                _ => difference.update(sum),
            };
            all = all.and(replace(bytes, field, new.to_be_bytes()));
        }
        if let Some(icmp) = header_mut::<Icmp>(bytes, self.transport.into()) {
            icmp.checksum.set(all.update(icmp.checksum.get()));
        }
    }
}

/// Replaces octets at an even offset and returns their difference.
fn replace<const N: usize>(bytes: &mut [u8], at: usize, new: [u8; N]) -> Difference {
    let Some(old) = bytes.get_mut(at..at + N) else { return Difference::default() };
    let difference = Difference::between(old, &new);
    old.copy_from_slice(&new);
    difference
}

/// Finds the identifier of an ICMP message, or the port or identifier of the packet that it quotes.
#[inline(never)]
fn icmp(bytes: &[u8], start: usize, side: Side) -> Result<(Protocol, u16, Field), Unreadable> {
    let icmp: &Icmp = header(bytes, start).ok_or(Unreadable::Malformed)?;
    match (icmp.message_type, side) {
        (Icmp::ECHO_REQUEST | TIMESTAMP | INFORMATION | ADDRESS_MASK, Side::Source)
        | (
            Icmp::ECHO_REPLY | TIMESTAMP_REPLY | INFORMATION_REPLY | ADDRESS_MASK_REPLY,
            Side::Destination,
        ) => Ok((Protocol::Icmp, (icmp.rest.get() >> 16) as u16, Field::Query)),
        (
            Icmp::DESTINATION_UNREACHABLE
            | SOURCE_QUENCH
            | Icmp::TIME_EXCEEDED
            | Icmp::PARAMETER_PROBLEM,
            _,
        ) => quoted(bytes, start + Icmp::LENGTH, side),
        _ => Err(Unreadable::Protocol),
    }
}

/// Finds the port or identifier of the packet that an ICMP error quotes. Its address must be the
/// one that is translated, otherwise the error is not about a packet of this user.
fn quoted(bytes: &[u8], at: usize, side: Side) -> Result<(Protocol, u16, Field), Unreadable> {
    let outer: &Ipv4 = header(bytes, 0).ok_or(Unreadable::Malformed)?;
    let ip: &Ipv4 = header(bytes, at).ok_or(Unreadable::Malformed)?;
    let is_sound = ip.version() == 4 && ip.header_length() >= Ipv4::LENGTH;
    let is_ours = side.quoted().address_of(ip) == side.address_of(outer);
    if !is_sound || !is_ours || ip.fragment_offset() != 0 {
        return Err(Unreadable::Malformed);
    }
    let transport = at + ip.header_length();
    let (protocol, offset) = match ip.protocol {
        IpProtocol::UDP => (Protocol::Udp, side.quoted().port()),
        IpProtocol::TCP => (Protocol::Tcp, side.quoted().port()),
        IpProtocol::ICMP => {
            let kind = bytes.get(transport).copied().ok_or(Unreadable::Malformed)?;
            let is_query = match side {
                Side::Source => kind == Icmp::ECHO_REPLY || kind == TIMESTAMP_REPLY,
                Side::Destination => kind == Icmp::ECHO_REQUEST || kind == TIMESTAMP,
            };
            if !is_query {
                return Err(Unreadable::Protocol);
            }
            (Protocol::Icmp, IDENTIFIER)
        }
        _ => return Err(Unreadable::Protocol),
    };
    let field = transport + offset;
    let port = header::<U16>(bytes, field).ok_or(Unreadable::Malformed)?.get();
    Ok((protocol, port, Field::Quoted { ip: at as u16, port: field as u16 }))
}
