//! Parses frames: GTP-U to this UPF, IP for UEs, or neither.

#[cfg(test)]
mod tests;
mod usual;

pub(crate) use usual::parse_usual;

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::wire::{
    EtherType, Ethernet, Fragment, GtpMessage, GtpMessageType, GtpU, IpProtocol, Ipv4, Ipv6,
    Layers, ParseError, PduSession, Udp, checksum, header,
};

use super::port_map::PortRole;
use crate::rules::layout::drop_reason::DropReason;

/// Kind of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Belongs to Linux.
    Linux,
    /// To be dropped.
    Drop(DropReason),
    /// GTP-U user data to a local address.
    Data(GtpuPacket),
    /// Another GTP-U message to a local address.
    Control(GtpuPacket),
    /// Fragment of a UDP datagram to a local address of the port.
    Fragment,
    /// IP packet without a tunnel, behind the Ethernet header.
    Ip {
        /// True for IPv6.
        is_v6: bool,
    },
}

/// A received GTP-U message. Offsets are in octets from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GtpuPacket {
    /// Tunnel endpoint identifier.
    pub(crate) teid: u32,
    /// End of the message.
    pub(crate) end: u32,
    /// Offset of the GTP-U header.
    pub(crate) gtp: u16,
    /// Offset of the inner packet or of the information elements.
    pub(crate) payload: u16,
    /// UDP source port.
    pub(crate) source_port: u16,
    /// Sequence number; 0 if it has none.
    pub(crate) sequence: u16,
    /// Message type.
    pub(crate) message_type: u8,
    /// PDU session container.
    pub(crate) pdu_session: Option<PduSession>,
    /// True if all extension headers that require comprehension are supported.
    pub(crate) is_understood: bool,
    /// True if the outer header is IPv6.
    pub(crate) is_v6: bool,
    /// Explicit congestion notification of the outer header (RFC 3168).
    pub(crate) ecn: u8,
    /// Index of the ingress interface.
    pub(crate) interface: u8,
}

impl GtpuPacket {
    /// Returns the range of the inner packet or of the information elements.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        usize::from(self.payload)..self.end as usize
    }

    /// Returns the length of the message in octets.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        (self.end as usize).saturating_sub(self.gtp.into())
    }
}

/// Parses a frame that arrived on a port.
#[inline(never)]
pub(crate) fn read(frame: &[u8], role: &PortRole, port_mac: Option<[u8; 6]>) -> FrameKind {
    match kind(frame, port_mac) {
        EtherType::IPV4 => four(frame, role),
        EtherType::IPV6 => six(frame, role),
        _ => FrameKind::Linux,
    }
}

/// Returns the EtherType of a frame to this station; 0 if it is for another one.
fn kind(frame: &[u8], port_mac: Option<[u8; 6]>) -> u16 {
    let Some(ethernet) = header::<Ethernet>(frame, 0) else { return 0 };
    let is_other = port_mac.is_some_and(|port_mac| ethernet.destination.0 != port_mac);
    if is_other { 0 } else { ethernet.ethertype.get() }
}

fn four(frame: &[u8], role: &PortRole) -> FrameKind {
    let Some(ip) = header::<Ipv4>(frame, Ethernet::LENGTH) else { return FrameKind::Linux };
    let without_tunnel =
        if role.takes_ip() { FrameKind::Ip { is_v6: false } } else { FrameKind::Linux };
    if ip.protocol != IpProtocol::UDP {
        return without_tunnel;
    }
    let Some(found) = role.own4(Ipv4Addr::from(ip.destination)) else { return without_tunnel };
    let behind = Ethernet::LENGTH + ip.header_length();
    let Some(udp) = header::<Udp>(frame, behind) else { return fragment_or_linux(ip, found) };
    if ip.fragment_offset() != 0 || udp.destination_port.get() != GtpU::PORT {
        return fragment_or_linux(ip, found);
    }
    let Some(interface) = found.or_else(|| role.interface_before(frame)) else {
        return FrameKind::Drop(DropReason::WrongInterface);
    };
    let end = Ethernet::LENGTH + usize::from(ip.total_length.get());
    if ip.version() != 4 || ip.header_length() < Ipv4::LENGTH || end > frame.len() {
        return FrameKind::Drop(DropReason::Malformed);
    }
    if ip.more_fragments() {
        return FrameKind::Fragment;
    }
    let mut sum = checksum::Sum::new().add_header::<{ Ipv4::LENGTH }>(zerocopy::transmute_ref!(ip));
    if ip.has_options() {
        sum = sum.add_bytes(frame.get(Ethernet::LENGTH + Ipv4::LENGTH..behind).unwrap_or_default());
    }
    if sum.fold() != 0xffff {
        return FrameKind::Drop(DropReason::Malformed);
    }
    let outer = OuterInfo { is_v6: false, ecn: ip.type_of_service & 3, interface };
    gtpu(frame, udp, UdpSpan { udp: behind, end }, outer)
}

#[inline(always)]
fn six(frame: &[u8], role: &PortRole) -> FrameKind {
    let Some(ip) = header::<Ipv6>(frame, Ethernet::LENGTH) else { return FrameKind::Linux };
    let without_tunnel =
        if role.takes_ip() { FrameKind::Ip { is_v6: true } } else { FrameKind::Linux };
    let Some(found) = role.own6(Ipv6Addr::from(ip.destination)) else { return without_tunnel };
    let Ok(layers) = Layers::parse_network(frame, Ethernet::LENGTH as u16, EtherType::IPV6) else {
        return FrameKind::Linux; // Linux drops or answers it
    };
    let is_fragment = layers.fragment != Fragment::None && layers.protocol == IpProtocol::UDP;
    if is_fragment && found.is_some() && !layers.truncated && !layers.routed {
        return FrameKind::Fragment;
    }
    let Some(udp) = layers.udp(frame) else { return FrameKind::Linux };
    if udp.destination_port.get() != GtpU::PORT {
        return FrameKind::Linux;
    }
    let Some(interface) = found.or_else(|| role.interface_before(frame)) else {
        return FrameKind::Drop(DropReason::WrongInterface);
    };
    if layers.truncated || layers.routed || is_fragment {
        return FrameKind::Drop(DropReason::Malformed);
    }
    // Zero is allowed for tunnels (RFC 6935 clause 5); any other value must be correct.
    let is_right = udp.checksum.get() == 0
        || checksum::verify_transport(frame, &layers).is_ok_and(|is_right| is_right);
    if !is_right {
        return FrameKind::Drop(DropReason::Malformed);
    }
    let outer = OuterInfo { is_v6: true, ecn: ip.traffic_class() & 3, interface };
    gtpu(frame, udp, UdpSpan { udp: layers.transport.into(), end: layers.end as usize }, outer)
}

/// Returns the kind of a UDP packet over IPv4 to a local address that has no port or another one:
/// other fragments of it may be those of GTP-U.
#[cold]
fn fragment_or_linux(ip: &Ipv4, found: Option<u8>) -> FrameKind {
    let is_fragment = ip.more_fragments() || ip.fragment_offset() != 0;
    match found {
        Some(_) if is_fragment => FrameKind::Fragment,
        _ => FrameKind::Linux,
    }
}

/// Fields of the outer header that later stages need.
struct OuterInfo {
    is_v6: bool,
    ecn: u8,
    interface: u8,
}

/// Offset of the UDP header and end of the IP packet.
struct UdpSpan {
    udp: usize,
    end: usize,
}

fn gtpu(frame: &[u8], udp: &Udp, span: UdpSpan, outer: OuterInfo) -> FrameKind {
    let Some(bytes) = payload(frame, udp, &span) else {
        return FrameKind::Drop(DropReason::Malformed);
    };
    match GtpMessage::parse(bytes) {
        Ok(message) => message_at(&message, udp, &span, &outer),
        Err(ParseError::Version(_)) => FrameKind::Drop(DropReason::GtpVersion),
        Err(_) => FrameKind::Drop(DropReason::Malformed),
    }
}

/// Returns the UDP payload if it is complete.
fn payload<'a>(frame: &'a [u8], udp: &Udp, span: &UdpSpan) -> Option<&'a [u8]> {
    let end = span.udp + usize::from(udp.length.get());
    if end > span.end {
        return None;
    }
    frame.get(span.udp + Udp::LENGTH..end)
}

fn message_at(message: &GtpMessage, udp: &Udp, span: &UdpSpan, outer: &OuterInfo) -> FrameKind {
    // The offset fits 16 bits unless the packet is longer than any IP packet.
    let gtp = (span.udp + Udp::LENGTH) as u16;
    let tunnel = GtpuPacket {
        teid: message.teid,
        end: u32::from(gtp) + message.end,
        gtp,
        payload: gtp.saturating_add(message.header_length),
        source_port: udp.source_port.get(),
        sequence: message.sequence_number.unwrap_or(0),
        message_type: message.message_type,
        pdu_session: message.pdu_session,
        is_understood: message.not_understood.is_none(),
        is_v6: outer.is_v6,
        ecn: outer.ecn,
        interface: outer.interface,
    };
    match message.message_type {
        GtpMessageType::G_PDU => FrameKind::Data(tunnel),
        _ => FrameKind::Control(tunnel),
    }
}
