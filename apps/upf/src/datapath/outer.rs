//! Reads frames as they arrive: GTP-U for us, IP for users, or neither.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::wire::{
    EtherType, Ethernet, GtpMessage, GtpMessageType, GtpU, IpProtocol, Ipv4, Ipv6, Layers,
    ParseError, PduSession, Udp, checksum, header,
};

use super::sides::Side;
use crate::rules::layout::cause::Cause;

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
#[inline(never)]
pub(crate) fn read(frame: &[u8], side: &Side, station: Option<[u8; 6]>) -> Arrival {
    match kind(frame, station) {
        EtherType::IPV4 => four(frame, side, gtpu),
        EtherType::IPV6 => six(frame, side),
        _ => Arrival::Linux,
    }
}

/// As [`read`], of what most frames are: user data in the usual form over IPv4, and IPv4 without a
/// tunnel. Nothing of it goes through memory. Of other messages of GTP-U only the header is read.
/// `None`: [`read`] says.
#[inline(always)]
pub(crate) fn read_usual(frame: &[u8], side: &Side, station: Option<[u8; 6]>) -> Option<Arrival> {
    if kind(frame, station) != EtherType::IPV4 {
        return None;
    }
    match four(frame, side, gtpu_usual) {
        usual @ (Arrival::Data(_) | Arrival::Control(_) | Arrival::Plain { .. }) => Some(usual),
        _ => None,
    }
}

/// The type of a frame for this station; 0: it is for another.
#[inline(always)]
fn kind(frame: &[u8], station: Option<[u8; 6]>) -> u16 {
    let Some(ethernet) = header::<Ethernet>(frame, 0) else { return 0 };
    let is_other = station.is_some_and(|station| ethernet.destination.0 != station);
    if is_other { 0 } else { ethernet.ethertype.get() }
}

#[inline(always)]
fn four(frame: &[u8], side: &Side, gtpu: impl Fn(&[u8], &Udp, Place, Outer) -> Arrival) -> Arrival {
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
    gtpu(frame, udp, Place { udp: behind, end }, outer)
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
    gtpu(frame, udp, Place { udp: layers.transport.into(), end: layers.end as usize }, outer)
}

/// What of the outer header is needed later.
struct Outer {
    is_v6: bool,
    ecn: u8,
    interface: u8,
}

/// Where the UDP header is, and where IP ends.
struct Place {
    udp: usize,
    end: usize,
}

fn gtpu(frame: &[u8], udp: &Udp, place: Place, outer: Outer) -> Arrival {
    let Some(bytes) = payload(frame, udp, &place) else { return Arrival::Drop(Cause::Malformed) };
    match GtpMessage::parse(bytes) {
        Ok(message) => message_at(&message, udp, &place, &outer),
        Err(ParseError::Version(_)) => Arrival::Drop(Cause::GtpVersion),
        Err(_) => Arrival::Drop(Cause::Malformed),
    }
}

/// What is not usual is not told apart.
#[inline(always)]
fn gtpu_usual(frame: &[u8], udp: &Udp, place: Place, outer: Outer) -> Arrival {
    let Some(bytes) = payload(frame, udp, &place) else { return Arrival::Linux };
    if let Some(message) = GtpMessage::parse_usual(bytes) {
        return message_at(&message, udp, &place, &outer);
    }
    match GtpMessage::parse_header(bytes) {
        Ok(message) if message.message_type != GtpMessageType::G_PDU => {
            message_at(&message, udp, &place, &outer)
        }
        _ => Arrival::Linux,
    }
}

/// What UDP carries, if all of it is there.
#[inline(always)]
fn payload<'a>(frame: &'a [u8], udp: &Udp, place: &Place) -> Option<&'a [u8]> {
    let end = place.udp + usize::from(udp.length.get());
    if end > place.end {
        return None;
    }
    frame.get(place.udp + Udp::LENGTH..end)
}

#[inline(always)]
fn message_at(message: &GtpMessage, udp: &Udp, place: &Place, outer: &Outer) -> Arrival {
    // A place beyond octet 65535 cannot be: only a packet of that length has room for it.
    let gtp = (place.udp + Udp::LENGTH) as u16;
    let tunnel = Tunnel {
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
        GtpMessageType::G_PDU => Arrival::Data(tunnel),
        _ => Arrival::Control(tunnel),
    }
}
