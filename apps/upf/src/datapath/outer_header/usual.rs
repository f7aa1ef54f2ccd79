//! Parses the usual frames in one pass over fixed offsets: user data over IPv4 without options, or
//! over IPv6 without extension headers, with a PDU session container or without any extension, and
//! IPv4 without a tunnel.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::wire::{
    EtherType, Ethernet, GtpExtensionType, GtpMessage, GtpMessageType, GtpU, IpProtocol, Ipv4,
    Ipv6, PduSession, Udp, checksum, header,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::super::port_map::PortRole;
use super::{FrameKind, GtpuPacket};

/// Headers of a GTP-U message over IPv4 without options, or over IPv6 without extension headers.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Headers<I> {
    ethernet: Ethernet,
    ip: I,
    udp: Udp,
    gtpu: GtpU,
}

/// Offset of the UDP header over IPv4.
const UDP: usize = Ethernet::LENGTH + Ipv4::LENGTH;
/// Length of the optional part with a PDU session container of 4 octets and nothing else.
const OPTIONAL: usize = 8;

/// Parses a usual frame. Of GTP-U messages that are not user data it parses only the header.
/// `None` if [`read`](super::read) has to parse the frame.
#[inline(always)]
pub(crate) fn parse_usual(
    frame: &[u8],
    role: &PortRole,
    port_mac: Option<[u8; 6]>,
) -> Option<FrameKind> {
    let Headers::<Ipv4> { ethernet, ip, udp, gtpu } = header(frame, 0)?;
    if port_mac.is_some_and(|port_mac| ethernet.destination.0 != port_mac) {
        return None;
    }
    if ethernet.ethertype.get() != EtherType::IPV4 {
        return parse_usual6(frame, role);
    }
    let own = match ip.protocol {
        IpProtocol::UDP => role.own4(Ipv4Addr::from(ip.destination)),
        _ => None,
    };
    let Some(interface) = own else {
        return role.takes_ip().then_some(FrameKind::Ip { is_v6: false });
    };
    let interface = interface.or_else(|| role.interface_before(frame))?;
    if ip.version_ihl != Ipv4::WITHOUT_OPTIONS || ip.is_fragment() {
        return None;
    }
    let sum = checksum::Sum::new().add_header::<{ Ipv4::LENGTH }>(zerocopy::transmute_ref!(ip));
    if sum.fold() != 0xffff {
        return None;
    }
    let outer = UsualOuter {
        udp: UDP,
        end: Ethernet::LENGTH + usize::from(ip.total_length.get()),
        is_v6: false,
        ecn: ip.type_of_service & 3,
        interface,
    };
    usual_gtpu(frame, udp, gtpu, outer)
}

/// Parses a usual frame with IPv6 outside. UDP has no checksum: [`read`](super::read) verifies the
/// others.
// A function of its own: together with that of IPv4, the offsets would be variables.
#[inline(never)]
fn parse_usual6(frame: &[u8], role: &PortRole) -> Option<FrameKind> {
    let Headers::<Ipv6> { ethernet, ip, udp, gtpu } = header(frame, 0)?;
    if ethernet.ethertype.get() != EtherType::IPV6
        || ip.version() != 6
        || ip.next_header != IpProtocol::UDP
        || udp.checksum.get() != 0
    {
        return None;
    }
    let interface = role.own6(Ipv6Addr::from(ip.destination))?;
    let outer = UsualOuter {
        udp: Ethernet::LENGTH + Ipv6::LENGTH,
        end: Ethernet::LENGTH + Ipv6::LENGTH + usize::from(ip.payload_length.get()),
        is_v6: true,
        ecn: ip.traffic_class() & 3,
        interface: interface.or_else(|| role.interface_before(frame))?,
    };
    usual_gtpu(frame, udp, gtpu, outer)
}

/// Fields of the usual outer headers.
struct UsualOuter {
    /// Offset of the UDP header.
    udp: usize,
    /// End of the IP packet.
    end: usize,
    is_v6: bool,
    ecn: u8,
    interface: u8,
}

/// Parses the GTP-U header behind usual outer headers.
#[inline(always)]
fn usual_gtpu(frame: &[u8], udp: &Udp, gtpu: &GtpU, outer: UsualOuter) -> Option<FrameKind> {
    let gtp = outer.udp + Udp::LENGTH;
    let behind = gtp + GtpU::LENGTH;
    let end = behind + usize::from(gtpu.length.get());
    let udp_end = outer.udp + usize::from(udp.length.get());
    let is_long_enough = end <= udp_end && udp_end <= outer.end && outer.end <= frame.len();
    if udp.destination_port.get() != GtpU::PORT || !is_long_enough {
        return None;
    }
    let tunnel = GtpuPacket {
        teid: gtpu.teid.get(),
        end: end as u32,
        gtp: gtp as u16,
        payload: behind as u16,
        source_port: udp.source_port.get(),
        sequence: 0,
        message_type: gtpu.message_type,
        pdu_session: None,
        is_understood: true,
        is_v6: outer.is_v6,
        ecn: outer.ecn,
        interface: outer.interface,
    };
    const WITH_EXTENSION: u8 = GtpU::VERSION_1 | GtpU::EXTENSION;
    match (gtpu.message_type, gtpu.flags) {
        (GtpMessageType::G_PDU, GtpU::VERSION_1) => Some(FrameKind::Data(tunnel)),
        (GtpMessageType::G_PDU, WITH_EXTENSION) => {
            let optional = header::<[u8; OPTIONAL]>(&frame[..end], behind)?;
            let pdu_session = Some(pdu_session(*optional)?);
            let payload = (behind + OPTIONAL) as u16;
            Some(FrameKind::Data(GtpuPacket { payload, pdu_session, ..tunnel }))
        }
        (GtpMessageType::G_PDU, _) => None,
        _ => {
            GtpMessage::parse_header(&frame[gtp..end]).ok()?;
            Some(FrameKind::Control(tunnel))
        }
    }
}

/// Returns the PDU session container that is the only extension header.
#[inline(always)]
fn pdu_session(optional: [u8; OPTIONAL]) -> Option<PduSession> {
    const CONTAINER: u8 = GtpExtensionType::PDU_SESSION_CONTAINER;
    let [_, _, _, CONTAINER, 1, first, second, GtpExtensionType::NONE] = optional else {
        return None;
    };
    Some(PduSession::read([first, second]))
}
