//! Translation of a packet by its flow: addresses, ports and checksums (RFC 1624, RFC 3022).

use fastlane::Packet;
use fastlane::mirror::NextHop;
use fastlane::mirror::flows::FlowRecord;
use fastlane::wire::checksum::{self, Difference};
use fastlane::wire::{Ethernet, IpProtocol, Ipv4, Ipv6, Tcp, Udp};

use crate::rewrite;

/// Difference of an IPv4 header whose time to live is decremented: the word that begins with it is
/// less by 0x0100, and `!0x0100` is that in ones' complement.
const DECREMENT: Difference = Difference::from_bits(!0x0100);

/// Translates an IPv4 packet without options and sends it on its way. `length` is that of the IP
/// packet.
#[inline(always)]
pub(crate) fn translate4(packet: &mut Packet, record: &FlowRecord, hop: &NextHop, length: u32) {
    rewrite::trim(packet, length);
    let mut protocol = 0;
    if let Some(ip) = packet.header_at::<Ipv4>(Ethernet::LENGTH) {
        let difference = Difference::from_bits(record.differences[0]).and(DECREMENT);
        ip.header_checksum.set(difference.update(ip.header_checksum.get()));
        ip.time_to_live = ip.time_to_live.wrapping_sub(1);
        [ip.source, ip.destination] = record.starts;
        protocol = ip.protocol;
    }
    transport(packet, record, protocol, Ethernet::LENGTH + Ipv4::LENGTH);
    rewrite::address(packet, hop);
}

/// Translates an IPv6 packet without extension headers and sends it on its way.
#[inline(always)]
pub(crate) fn translate6(packet: &mut Packet, record: &FlowRecord, hop: &NextHop, length: u32) {
    rewrite::trim(packet, length);
    let mut protocol = 0;
    if let Some(ip) = packet.header_at::<Ipv6>(Ethernet::LENGTH) {
        ip.hop_limit = ip.hop_limit.wrapping_sub(1);
        (ip.source, ip.destination) = (record.source(), record.destination());
        protocol = ip.next_header;
    }
    transport(packet, record, protocol, Ethernet::LENGTH + Ipv6::LENGTH);
    rewrite::address(packet, hop);
}

/// Translates the ports and the checksum of a transport header.
#[inline(always)]
fn transport(packet: &mut Packet, record: &FlowRecord, protocol: u8, at: usize) {
    // That of a packet in a tunnel may be partial while the one here is complete.
    let partial = packet.partial_checksum();
    let is_partial = partial.is_some_and(|partial| usize::from(partial.start) == at);
    let [addresses, ports] = record.differences.map(Difference::from_bits);
    let update = |checksum: u16| match is_partial {
        // The sum of the pseudo header, not complemented; ports are not in it.
        true => addresses.update_sum(checksum),
        false => addresses.and(ports).update(checksum),
    };
    if protocol == IpProtocol::UDP {
        let Some(udp) = packet.header_at::<Udp>(at) else { return };
        udp.source_port.set(record.ports[0]);
        udp.destination_port.set(record.ports[1]);
        let field = udp.checksum.get();
        if field != 0 {
            // 0 would mean that there is none.
            udp.checksum.set(checksum::udp(update(field)));
        }
    } else if let Some(tcp) = packet.header_at::<Tcp>(at) {
        tcp.source_port.set(record.ports[0]);
        tcp.destination_port.set(record.ports[1]);
        tcp.checksum.set(update(tcp.checksum.get()));
    }
}
