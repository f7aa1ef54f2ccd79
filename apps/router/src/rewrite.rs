//! Header rewriting of forwarded packets.

use fastlane::Packet;
use fastlane::mirror::NextHop;
use fastlane::wire::{Ethernet, Ipv4, Ipv6, MacAddress, checksum};

/// Minimum frame length in bytes without the frame check sequence, up to which frames may be padded
/// (IEEE 802.3, 4.2.3.3).
const SHORTEST: usize = 60;

/// Rewrites an IPv4 packet: Ethernet addresses, time to live, and the checksum incrementally (RFC
/// 1624). `length` is that of the IP packet.
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

/// Rewrites an IPv6 packet: Ethernet addresses and hop limit. `length` is that of the IP packet.
#[inline(always)]
pub(crate) fn forward6(packet: &mut Packet, hop: &NextHop, length: u32) {
    trim(packet, length);
    if let Some(ip) = packet.header_at::<Ipv6>(Ethernet::LENGTH) {
        ip.hop_limit = ip.hop_limit.wrapping_sub(1);
    }
    address(packet, hop);
}

#[inline(always)]
pub(crate) fn address(packet: &mut Packet, hop: &NextHop) {
    if let Some(ethernet) = packet.header::<Ethernet>() {
        ethernet.destination = MacAddress(hop.destination);
        ethernet.source = MacAddress(hop.source);
    }
}

/// Removes bytes after the IP packet, except for the padding of a short frame.
#[inline(always)]
pub(crate) fn trim(packet: &mut Packet, length: u32) {
    let end = (Ethernet::LENGTH + length as usize).max(SHORTEST);
    if packet.len() > end {
        let _ = packet.truncate(end); // shorter, so it can
    }
}
