//! Parses the usual frames in one pass over fixed offsets: user data over IPv4 without options,
//! with a PDU session container or without any extension, and IPv4 without a tunnel.

use std::net::Ipv4Addr;

use fastlane::wire::{
    EtherType, Ethernet, GtpExtensionType, GtpMessage, GtpMessageType, GtpU, IpProtocol, Ipv4,
    PduSession, Udp, checksum, header,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::super::port_map::PortRole;
use super::{FrameKind, GtpuPacket};

/// Headers of a GTP-U message over IPv4 without options.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Headers {
    ethernet: Ethernet,
    ip: Ipv4,
    udp: Udp,
    gtpu: GtpU,
}

/// Offset of the UDP header.
const UDP: usize = Ethernet::LENGTH + Ipv4::LENGTH;
/// Offset of the GTP-U header.
const GTP: usize = UDP + Udp::LENGTH;
/// Offset of what follows the mandatory part of the GTP-U header.
const BEHIND: usize = GTP + GtpU::LENGTH;
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
    let Headers { ethernet, ip, udp, gtpu } = header(frame, 0)?;
    if ethernet.ethertype.get() != EtherType::IPV4
        || port_mac.is_some_and(|port_mac| ethernet.destination.0 != port_mac)
    {
        return None;
    }
    let own = match ip.protocol {
        IpProtocol::UDP => role.own4(Ipv4Addr::from(ip.destination)),
        _ => None,
    };
    let Some(interface) = own else {
        return role.takes_ip().then_some(FrameKind::Ip { is_v6: false });
    };
    let interface = interface.or_else(|| role.interface_before(frame))?;
    let is_gtpu = udp.destination_port.get() == GtpU::PORT;
    let end = BEHIND + usize::from(gtpu.length.get());
    let is_long_enough = end <= UDP + usize::from(udp.length.get())
        && UDP + usize::from(udp.length.get())
            <= Ethernet::LENGTH + usize::from(ip.total_length.get())
        && Ethernet::LENGTH + usize::from(ip.total_length.get()) <= frame.len();
    if ip.version_ihl != Ipv4::WITHOUT_OPTIONS || ip.is_fragment() || !is_gtpu || !is_long_enough {
        return None;
    }
    let sum = checksum::Sum::new().add_header::<{ Ipv4::LENGTH }>(zerocopy::transmute_ref!(ip));
    if sum.fold() != 0xffff {
        return None;
    }
    let tunnel = GtpuPacket {
        teid: gtpu.teid.get(),
        end: end as u32,
        gtp: GTP as u16,
        payload: BEHIND as u16,
        source_port: udp.source_port.get(),
        sequence: 0,
        message_type: gtpu.message_type,
        pdu_session: None,
        is_understood: true,
        is_v6: false,
        ecn: ip.type_of_service & 3,
        interface,
    };
    const WITH_EXTENSION: u8 = GtpU::VERSION_1 | GtpU::EXTENSION;
    match (gtpu.message_type, gtpu.flags) {
        (GtpMessageType::G_PDU, GtpU::VERSION_1) => Some(FrameKind::Data(tunnel)),
        (GtpMessageType::G_PDU, WITH_EXTENSION) => {
            let optional = header::<[u8; OPTIONAL]>(&frame[..end], BEHIND)?;
            let pdu_session = Some(pdu_session(*optional)?);
            let payload = (BEHIND + OPTIONAL) as u16;
            Some(FrameKind::Data(GtpuPacket { payload, pdu_session, ..tunnel }))
        }
        (GtpMessageType::G_PDU, _) => None,
        _ => {
            GtpMessage::parse_header(&frame[GTP..end]).ok()?;
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
