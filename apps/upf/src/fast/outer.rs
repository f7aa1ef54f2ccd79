//! Reads frames as they arrive: GTP-U for us, IP for users, or neither.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::wire::{
    EtherType, Ethernet, GtpMessage, GtpMessageType, GtpU, IpProtocol, Ipv4, Ipv6, Layers,
    ParseError, PduSession, Udp, checksum, header,
};

use super::sides::Side;
use crate::shared::cause::Cause;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Linux's.
    Linux,
    /// Nobody's.
    Drop(Cause),
    /// User data in GTP-U to one of our addresses.
    Data(Tunnel),
    /// Another message of GTP-U to one of them.
    Control(Tunnel),
    /// IP that did not come through a tunnel, behind the Ethernet header.
    Plain {
        /// Whether it is IPv6.
        is_v6: bool,
    },
}

/// A message of GTP-U. Places are in octets from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// The tunnel endpoint identifier.
    pub(crate) teid: u32,
    /// Where the message ends.
    pub(crate) end: u32,
    /// Where the GTP-U header is.
    pub(crate) gtp: u16,
    /// Where the inner packet, or what else the message carries, begins.
    pub(crate) payload: u16,
    /// Where it came from.
    pub(crate) source_port: u16,
    /// Its sequence number; 0: it has none.
    pub(crate) sequence: u16,
    /// Its type.
    pub(crate) message_type: u8,
    /// What its PDU session container says.
    pub(crate) pdu_session: Option<PduSession>,
    /// Whether all extension headers that must be understood are.
    pub(crate) is_understood: bool,
    /// Whether the outer header is IPv6.
    pub(crate) is_v6: bool,
    /// The outer header's explicit congestion notification (RFC 3168).
    pub(crate) ecn: u8,
    /// The interface that it came to, by its place.
    pub(crate) interface: u8,
}

impl Tunnel {
    /// Where the inner packet, or what else the message carries, begins and ends.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        usize::from(self.payload)..self.end as usize
    }

    /// Octets of the message.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        (self.end as usize).saturating_sub(self.gtp.into())
    }
}

/// Reads a frame that came by a side of the user plane.
#[inline(always)]
pub(crate) fn read(frame: &[u8], side: &Side, station: Option<[u8; 6]>) -> Arrival {
    let Some(ethernet) = header::<Ethernet>(frame, 0) else { return Arrival::Linux };
    if station.is_some_and(|station| ethernet.destination.0 != station) {
        return Arrival::Linux;
    }
    match ethernet.ethertype.get() {
        EtherType::IPV4 => four(frame, side),
        EtherType::IPV6 => six(frame, side),
        _ => Arrival::Linux,
    }
}

#[inline(always)]
fn four(frame: &[u8], side: &Side) -> Arrival {
    let Some(ip) = header::<Ipv4>(frame, Ethernet::LENGTH) else { return Arrival::Linux };
    let plain = if side.is_plain() { Arrival::Plain { is_v6: false } } else { Arrival::Linux };
    if ip.protocol != IpProtocol::UDP {
        return plain;
    }
    let Some(found) = side.own4(Ipv4Addr::from(ip.destination)) else { return plain };
    let behind = Ethernet::LENGTH + ip.header_length();
    let Some(udp) = header::<Udp>(frame, behind) else { return Arrival::Linux };
    if ip.fragment_offset() != 0 || udp.destination_port.get() != GtpU::PORT {
        // Of a later fragment nobody knows the port; without a first one Linux can do nothing.
        return Arrival::Linux;
    }
    let Some(interface) = found else { return Arrival::Drop(Cause::WrongInterface) };
    let end = Ethernet::LENGTH + usize::from(ip.total_length.get());
    if ip.version() != 4 || ip.header_length() < Ipv4::LENGTH || end > frame.len() {
        return Arrival::Drop(Cause::Malformed);
    }
    if ip.more_fragments() {
        return Arrival::Drop(Cause::OuterFragment);
    }
    let mut sum = checksum::Sum::new().add_header::<{ Ipv4::LENGTH }>(zerocopy::transmute_ref!(ip));
    if ip.has_options() {
        sum = sum.add_bytes(frame.get(Ethernet::LENGTH + Ipv4::LENGTH..behind).unwrap_or_default());
    }
    if sum.fold() != 0xffff {
        return Arrival::Drop(Cause::Malformed);
    }
    let outer = Outer { is_v6: false, ecn: ip.type_of_service & 3, interface };
    gtpu(frame, behind, end, udp, outer)
}

#[inline(always)]
fn six(frame: &[u8], side: &Side) -> Arrival {
    let Some(ip) = header::<Ipv6>(frame, Ethernet::LENGTH) else { return Arrival::Linux };
    let plain = if side.is_plain() { Arrival::Plain { is_v6: true } } else { Arrival::Linux };
    let Some(found) = side.own6(Ipv6Addr::from(ip.destination)) else { return plain };
    let Ok(layers) = Layers::parse_network(frame, Ethernet::LENGTH as u16, EtherType::IPV6) else {
        return Arrival::Linux; // it drops or answers it
    };
    let Some(udp) = layers.udp(frame) else { return Arrival::Linux };
    if udp.destination_port.get() != GtpU::PORT {
        return Arrival::Linux;
    }
    let Some(interface) = found else { return Arrival::Drop(Cause::WrongInterface) };
    if layers.truncated || layers.routed {
        return Arrival::Drop(Cause::Malformed);
    }
    if layers.fragment != fastlane::wire::Fragment::None {
        return Arrival::Drop(Cause::OuterFragment);
    }
    // Zero is let pass for tunnels (RFC 6935 clause 5); anything else must be right.
    let is_right = udp.checksum.get() == 0
        || checksum::verify_transport(frame, &layers).is_ok_and(|is_right| is_right);
    if !is_right {
        return Arrival::Drop(Cause::Malformed);
    }
    let outer = Outer { is_v6: true, ecn: ip.traffic_class() & 3, interface };
    gtpu(frame, layers.transport.into(), layers.end as usize, udp, outer)
}

/// What of the outer header is needed later.
struct Outer {
    is_v6: bool,
    ecn: u8,
    interface: u8,
}

#[inline(always)]
fn gtpu(frame: &[u8], at: usize, end: usize, udp: &Udp, outer: Outer) -> Arrival {
    let length = usize::from(udp.length.get());
    let gtp = at + Udp::LENGTH;
    // A place beyond octet 65535 cannot be: only a packet of that length has room for it.
    let Some(bytes) = frame.get(gtp..(at + length).min(end)).filter(|_| at + length <= end) else {
        return Arrival::Drop(Cause::Malformed);
    };
    match GtpMessage::parse(bytes) {
        Ok(message) => {
            let tunnel = Tunnel {
                teid: message.teid,
                end: gtp as u32 + message.end,
                gtp: gtp as u16,
                payload: (gtp as u16).saturating_add(message.header_length),
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
                GtpMessageType::G_PDU => Arrival::Data(tunnel),
                _ => Arrival::Control(tunnel),
            }
        }
        Err(ParseError::Version(_)) => Arrival::Drop(Cause::GtpVersion),
        Err(_) => Arrival::Drop(Cause::Malformed),
    }
}
