//! What forwarding changes in a packet.

use fastlane::Packet;
use fastlane::mirror::NextHop;
use fastlane::wire::{Ethernet, Ipv4, Ipv6, MacAddress, checksum};

/// A frame of this length or less may be padded (IEEE 802.3 clause 4.2.3.3), without its check
/// sequence.
const SHORTEST: usize = 60;

/// Sends an IPv4 packet on its way: new addresses, one hop less to live, the checksum changed by
/// what changed under it (RFC 1624). `length` is that of the IP packet.
#[inline(always)]
pub(crate) fn forward4(packet: &mut Packet, hop: &NextHop, length: u32) {
    trim(packet, length);
    if let Some(ip) = packet.header_at::<Ipv4>(Ethernet::LENGTH) {
        let word = |time_to_live| u16::from_be_bytes([time_to_live, ip.protocol]);
        let (old, new) = (word(ip.time_to_live), word(ip.time_to_live.wrapping_sub(1)));
        let changed = checksum::update_u16(ip.header_checksum.get(), old, new);
        ip.header_checksum.set(changed);
        ip.time_to_live = ip.time_to_live.wrapping_sub(1);
    }
    address(packet, hop);
}

/// Sends an IPv6 packet on its way.
#[inline(always)]
pub(crate) fn forward6(packet: &mut Packet, hop: &NextHop, length: u32) {
    trim(packet, length);
    if let Some(ip) = packet.header_at::<Ipv6>(Ethernet::LENGTH) {
        ip.hop_limit = ip.hop_limit.wrapping_sub(1);
    }
    address(packet, hop);
}

#[inline(always)]
fn address(packet: &mut Packet, hop: &NextHop) {
    if let Some(ethernet) = packet.header::<Ethernet>() {
        ethernet.destination = MacAddress(hop.destination);
        ethernet.source = MacAddress(hop.source);
    }
}

/// What stands behind the IP packet is not forwarded, but for the padding of a short frame.
#[inline(always)]
fn trim(packet: &mut Packet, length: u32) {
    let end = (Ethernet::LENGTH + length as usize).max(SHORTEST);
    if packet.len() > end {
        let _ = packet.truncate(end); // shorter, so it can
    }
}
