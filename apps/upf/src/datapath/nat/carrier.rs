//! The part of a packet that NAT translates: where its port or identifier is, and how it is
//! replaced together with the address and the checksums (RFC 3022, RFC 5508, RFC 1624).

use fastlane::wire::checksum::{self, Difference, update_u16};
use fastlane::wire::{Icmp, IpProtocol, Ipv4, Tcp, U16, Udp, header, header_mut};

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

/// Address of a packet that is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Source: of packets of users.
    Source,
    /// Destination: of packets to users.
    Destination,
}

impl Side {
    /// Returns the address of the packet that an ICMP error quotes: it went the other way.
    const fn quoted(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    /// Returns the offset of the address in an IPv4 header.
    const fn address(self) -> usize {
        match self {
            Self::Source => 12,
            Self::Destination => 16,
        }
    }

    /// Returns the offset of the port in a transport header.
    const fn port(self) -> usize {
        match self {
            Self::Source => 0,
            Self::Destination => 2,
        }
    }

    /// Returns the address of this side.
    #[inline]
    pub(super) fn address_of(self, ip: &Ipv4) -> u32 {
        u32::from_be_bytes(match self {
            Self::Source => ip.source,
            Self::Destination => ip.destination,
        })
    }
}

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
    /// In the transport header.
    Transport,
    /// Identifier of an ICMP query.
    Query,
    /// In the packet that an ICMP error quotes: offset of its header, and of the port.
    Quoted { ip: u16, port: u16 },
}

/// Translated part of a packet, with what its mapping depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carrier {
    /// Protocol of the mapping.
    pub(super) protocol: Protocol,
    /// Port or identifier of the side.
    pub(super) port: u16,
    /// Control bits of a TCP segment.
    pub(super) control: u8,
    /// True if a TCP segment has data.
    pub(super) has_data: bool,
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
    #[inline]
    pub(super) fn read(bytes: &[u8], side: Side) -> Result<Self, Unreadable> {
        let ip: &Ipv4 = header(bytes, 0).ok_or(Unreadable::Malformed)?;
        let (start, total) = (ip.header_length(), usize::from(ip.total_length.get()));
        let bytes = bytes.get(..total).ok_or(Unreadable::Malformed)?;
        if start < Ipv4::LENGTH || ip.version() != 4 {
            return Err(Unreadable::Malformed);
        }
        if ip.fragment_offset() != 0 {
            return Err(Unreadable::Fragment);
        }
        let of = |protocol, port, field| Self {
            protocol,
            port,
            control: 0,
            has_data: false,
            side,
            field,
            transport: start as u16,
        };
        let port_of = |source: U16, destination: U16| match side {
            Side::Source => source.get(),
            Side::Destination => destination.get(),
        };
        match ip.protocol {
            IpProtocol::UDP => {
                let udp: &Udp = header(bytes, start).ok_or(Unreadable::Malformed)?;
                let port = port_of(udp.source_port, udp.destination_port);
                Ok(of(Protocol::Udp, port, Field::Transport))
            }
            IpProtocol::TCP => {
                let tcp: &Tcp = header(bytes, start).ok_or(Unreadable::Malformed)?;
                let port = port_of(tcp.source_port, tcp.destination_port);
                let has_data = total > start + tcp.header_length();
                let carrier = of(Protocol::Tcp, port, Field::Transport);
                Ok(Self { control: tcp.control(), has_data, ..carrier })
            }
            IpProtocol::ICMP => {
                let (protocol, port, field) = icmp(bytes, start, side)?;
                Ok(of(protocol, port, field))
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
    pub(super) fn write(&self, bytes: &mut [u8], address: u32, port: u16) {
        let Some(ip) = header_mut::<Ipv4>(bytes, 0) else { return };
        let old = self.side.address_of(ip);
        let change = Difference::of_u32(old, address);
        ip.header_checksum.set(change.update(ip.header_checksum.get()));
        match self.side {
            Side::Source => ip.source = address.to_be_bytes(),
            Side::Destination => ip.destination = address.to_be_bytes(),
        }
        let start = usize::from(self.transport);
        let change = change.and(Difference::of_u16(self.port, port));
        match (self.field, self.protocol) {
            (Field::Transport, Protocol::Udp) => {
                let Some(udp) = header_mut::<Udp>(bytes, start) else { return };
                match self.side {
                    Side::Source => udp.source_port.set(port),
                    Side::Destination => udp.destination_port.set(port),
                }
                if udp.checksum.get() != 0 {
                    udp.checksum.set(checksum::udp(change.update(udp.checksum.get())));
                }
            }
            (Field::Transport, _) => {
                let Some(tcp) = header_mut::<Tcp>(bytes, start) else { return };
                match self.side {
                    Side::Source => tcp.source_port.set(port),
                    Side::Destination => tcp.destination_port.set(port),
                }
                tcp.checksum.set(change.update(tcp.checksum.get()));
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
        icmp.checksum.set(update_u16(icmp.checksum.get(), self.port, port));
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
        let transport = at - if self.protocol == Protocol::Icmp { IDENTIFIER } else { side.port() };
        let (field, difference) = match self.protocol {
            Protocol::Udp => (transport + UDP_CHECKSUM, address.and(port)),
            Protocol::Tcp => (transport + usize::from(Tcp::CHECKSUM_OFFSET), address.and(port)),
            Protocol::Icmp => (transport + 2, port),
        };
        if let Some(sum) = header::<U16>(bytes, field).map(|sum| sum.get())
            && !(self.protocol == Protocol::Udp && sum == 0)
        {
            let new = match self.protocol {
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
