//! The headers of packets as the reference of NAT reads them: checksums, ports and identifiers.

use fastlane_wire::{Layers, checksum};

use super::mapping_model::Key;
use super::nat_lane::{ICMP, TCP, UDP};

/// Offset of the identifier in an ICMP message.
const IDENTIFIER: usize = 4;
/// ICMP queries of users, and the answers to them.
const QUERIES: [u8; 4] = [8, 13, 15, 17];
const ANSWERS: [u8; 4] = [0, 14, 16, 18];
/// ICMP errors that are translated.
pub(crate) const ERRORS: [u8; 4] = [3, 4, 11, 12];

/// Returns true for each checksum that an IPv4 packet has and that is right: of its own header, of
/// the transport header. Those of fragments but the header's cannot be told.
pub(crate) fn sums(packet: &[u8]) -> [bool; 2] {
    let Ok(layers) = Layers::parse_network(packet, 0, 0x0800) else { return [false; 2] };
    if !layers.is_ipv4() || layers.truncated {
        return [false; 2];
    }
    let header = checksum::verify_ipv4_header(packet, &layers) == Ok(true);
    let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    if is_fragment {
        return [header, false];
    }
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]])).min(packet.len());
    let transport = match packet[9] {
        ICMP => packet.get(usize::from(layers.transport)..total).map(checksum::checksum) == Some(0),
        _ => checksum::verify_transport(packet, &layers) == Ok(true),
    };
    [header, transport]
}

/// Returns protocol and port of a side of an IPv4 packet (0: source, 2: destination), or its
/// identifier, also those of the packet that an ICMP error quotes. `None` if it has none.
pub(crate) fn carried(packet: &[u8], side: usize) -> Option<(u8, u16)> {
    let first = *packet.first()?;
    let start = usize::from(first & 15) * 4;
    let offset = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x1fff;
    if first >> 4 != 4 || start < 20 || offset != 0 {
        return None;
    }
    let protocol = *packet.get(9)?;
    let port = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    match protocol {
        UDP | TCP => Some((protocol, port(start + side)?)),
        ICMP => {
            let kind = *packet.get(start)?;
            if ERRORS.contains(&kind) {
                return carried_by_quoted(packet.get(start + 8..)?, side);
            }
            let is_query = if side == 0 { QUERIES } else { ANSWERS }.contains(&kind);
            is_query.then(|| Some((ICMP, port(start + IDENTIFIER)?)))?
        }
        _ => None,
    }
}

/// Returns protocol and port of a packet that went the other way.
fn carried_by_quoted(quoted: &[u8], side: usize) -> Option<(u8, u16)> {
    let start = usize::from(quoted.first()? & 15) * 4;
    let protocol = *quoted.get(9)?;
    let at = if protocol == ICMP { IDENTIFIER } else { 2 - side };
    Some((protocol, u16::from_be_bytes(*quoted.get(start + at..)?.first_chunk()?)))
}

/// Returns the mapping that a packet of a user may make or refresh.
pub(crate) fn own_mapping(other: bool, packet: &[u8]) -> Option<Key> {
    let is_error = packet.get(9) == Some(&ICMP)
        && packet.get(usize::from(packet[0] & 15) * 4).is_some_and(|kind| ERRORS.contains(kind));
    let (protocol, port) = carried(packet, 0).filter(|_| !is_error)?;
    Some((other, protocol, port))
}

/// Gives an IPv4 packet its length and right checksums, as far as its headers are complete.
pub(crate) fn repair(packet: &mut [u8]) {
    let length = packet.len() as u16;
    if packet.len() < 20 || usize::from(packet[0] & 15) * 4 > packet.len() {
        return;
    }
    packet[0] = 0x40 | packet[0] & 15;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    crate::frames::fill(packet);
    let Ok(layers) = Layers::parse_network(packet, 0, 0x0800) else { return };
    let start = usize::from(layers.transport);
    if packet[9] == ICMP && packet.len() >= start + 4 {
        packet[start + 2..start + 4].fill(0);
        let sum = checksum::checksum(&packet[start..]).to_be_bytes();
        packet[start + 2..start + 4].copy_from_slice(&sum);
    } else {
        let _ = checksum::fill_transport(packet, &layers); // it may have none
    }
}
