//! IP forwarding of UE packets without a tunnel.

use fastlane::Packet;
use fastlane::mirror::NextHop;
use fastlane::wire::checksum::{self, Difference};
use fastlane::wire::{EtherType, Ethernet, Ipv4, Ipv6, U16, header_mut};

use super::encap::cut;

/// Difference of an IPv4 header whose TTL, the upper octet of a word, is decremented.
const DECREMENT: Difference = Difference::from_bits(!0x0100);

/// Decrements the TTL of an inner packet, which must not be 0, and updates its checksum (RFC 1624).
#[inline(always)]
pub(crate) fn decrement_ttl(inner: &mut [u8]) {
    match inner.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(ip) = header_mut::<Ipv4>(inner, 0) else { return };
            ip.header_checksum.set(DECREMENT.update(ip.header_checksum.get()));
            ip.time_to_live = ip.time_to_live.wrapping_sub(1);
        }
        _ => {
            if let Some(ip) = header_mut::<Ipv6>(inner, 0) {
                ip.hop_limit = ip.hop_limit.wrapping_sub(1);
            }
        }
    }
}

/// Copies a congestion mark from the outer to the inner header (RFC 6040 clause 4.2); false if the
/// packet must be dropped.
#[cold]
pub(crate) fn copy_congestion(inner: &mut [u8]) -> bool {
    match inner.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(ip) = header_mut::<Ipv4>(inner, 0) else { return false };
            if ip.type_of_service & 3 == 0 {
                return false;
            }
            let word = |tos| u16::from_be_bytes([ip.version_ihl, tos]);
            let marked = ip.type_of_service | 3;
            let (old, new) = (word(ip.type_of_service), word(marked));
            let changed = checksum::update_u16(ip.header_checksum.get(), old, new);
            ip.header_checksum.set(changed);
            ip.type_of_service = marked;
            true
        }
        Some(6) => {
            let Some(ip) = header_mut::<Ipv6>(inner, 0) else { return false };
            if ip.traffic_class() & 3 == 0 {
                return false;
            }
            let marked = ip.version_class_flow.get() | 3 << 20;
            ip.version_class_flow.set(marked);
            true
        }
        _ => false,
    }
}

/// Sets the bits of `mask` in the inner packet's type of service.
#[cold]
pub(crate) fn mark(inner: &mut [u8], marking: u8, mask: u8) {
    let marked = |tos: u8| tos & !mask | marking & mask;
    match inner.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(ip) = header_mut::<Ipv4>(inner, 0) else { return };
            let tos = marked(ip.type_of_service);
            let word = |tos| u16::from_be_bytes([ip.version_ihl, tos]);
            let (old, new) = (word(ip.type_of_service), word(tos));
            let changed = checksum::update_u16(ip.header_checksum.get(), old, new);
            ip.header_checksum.set(changed);
            ip.type_of_service = tos;
        }
        _ => {
            let Some(ip) = header_mut::<Ipv6>(inner, 0) else { return };
            let class = u32::from(marked(ip.traffic_class()));
            let word = ip.version_class_flow.get() & !(0xff << 20) | class << 20;
            ip.version_class_flow.set(word);
        }
    }
}

/// Writes an Ethernet header to a next hop in front of the `length` octets of IP that begin `at`
/// octets into a packet. Everything before and behind them is removed. Returns false if there is no
/// room.
// In the path of every forwarded packet: a call costs 20 instructions.
#[inline(always)]
pub(crate) fn send(
    packet: &mut Packet,
    at: usize,
    length: usize,
    is_v6: bool,
    hop: &NextHop,
) -> bool {
    if !cut(packet, at, length, Ethernet::LENGTH) {
        return false;
    }
    let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let Some(ethernet) = packet.header::<Ethernet>() else { return false };
    // Field by field, since a whole header would be read back before it is stored.
    ethernet.destination.0 = hop.destination;
    ethernet.source.0 = hop.source;
    ethernet.ethertype.set(ethertype);
    true
}

/// Writes an Ethernet header between two addresses, otherwise like [`send`].
pub(crate) fn send_between(
    packet: &mut Packet,
    at: usize,
    length: usize,
    is_v6: bool,
    [destination, source]: [[u8; 6]; 2],
) -> bool {
    if !cut(packet, at, length, Ethernet::LENGTH) {
        return false;
    }
    let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let Some(ethernet) = packet.header::<Ethernet>() else { return false };
    ethernet.destination.0 = destination;
    ethernet.source.0 = source;
    ethernet.ethertype = U16::new(ethertype);
    true
}
