//! Conversion between datagrams and Ethernet frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fastlane_wire::checksum::checksum;

use super::{LOCAL_MAC, REMOTE_MAC};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// Returns the length of the headers before the payload of a received frame.
pub(super) const fn headers(local: &SocketAddr) -> usize {
    ETHERNET + UDP + if local.is_ipv4() { IPV4 } else { IPV6 }
}

/// Writes the headers of a datagram before its payload. The UDP checksum is zero for IPv4 and IPv6
/// (RFC 6935): the kernel has checked it.
pub(super) fn write(frame: &mut [u8], from: SocketAddr, local: SocketAddr) -> Option<()> {
    let headers = headers(&local);
    let (ethernet, rest) = frame.split_at_mut_checked(ETHERNET)?;
    let udp_length = u16::try_from(rest.len().checked_sub(headers - ETHERNET - UDP)?).ok()?;
    ethernet[..6].copy_from_slice(&LOCAL_MAC);
    ethernet[6..12].copy_from_slice(&REMOTE_MAC);
    let udp = match (from.ip().to_canonical(), local.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            ethernet[12..].copy_from_slice(&[0x08, 0x00]);
            let (ip, udp) = rest.split_at_mut_checked(IPV4)?;
            ipv4(ip, udp_length, from, to)?;
            udp
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ethernet[12..].copy_from_slice(&[0x86, 0xdd]);
            let (ip, udp) = rest.split_at_mut_checked(IPV6)?;
            ipv6(ip, udp_length, from, to);
            udp
        }
        _ => return None,
    };
    let udp = udp.first_chunk_mut::<UDP>()?;
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&local.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    udp[6..].copy_from_slice(&[0, 0]);
    Some(())
}

fn ipv4(ip: &mut [u8], udp_length: u16, from: Ipv4Addr, to: Ipv4Addr) -> Option<()> {
    let length = udp_length.checked_add(IPV4 as u16)?;
    ip.fill(0);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[8] = HOP_LIMIT;
    ip[9] = PROTOCOL_UDP;
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn ipv6(ip: &mut [u8], udp_length: u16, from: Ipv6Addr, to: Ipv6Addr) {
    ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    ip[4..6].copy_from_slice(&udp_length.to_be_bytes());
    ip[6] = PROTOCOL_UDP;
    ip[7] = HOP_LIMIT;
    ip[8..24].copy_from_slice(&from.octets());
    ip[24..40].copy_from_slice(&to.octets());
}

/// Datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    pub(super) to: SocketAddr,
    /// Type of service or traffic class.
    pub(super) class: u8,
    pub(super) payload: &'a [u8],
}

/// Parses the datagram in a frame, if the socket can send it: unfragmented UDP from its own address
/// and port.
pub(super) fn read<'a>(frame: &'a [u8], local: &SocketAddr) -> Option<Datagram<'a>> {
    let (ethernet, rest) = frame.split_at_checked(ETHERNET)?;
    let (from, to, class, udp) = match (ethernet.get(12..)?, rest.first()? >> 4) {
        ([0x08, 0x00], 4) => read_ipv4(rest)?,
        ([0x86, 0xdd], 6) => read_ipv6(rest)?,
        _ => return None,
    };
    let (header, rest) = udp.split_first_chunk::<UDP>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let payload = rest.get(..usize::from(word(4)).checked_sub(UDP)?)?;
    let is_ours = from == local.ip() && word(0) == local.port();
    is_ours.then_some(Datagram { to: SocketAddr::new(to, word(2)), class, payload })
}

fn read_ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    let (ip, rest) = packet.split_first_chunk::<IPV4>()?;
    let is_whole = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0;
    if ip[0] != 0x45 || ip[9] != PROTOCOL_UDP || !is_whole {
        return None;
    }
    let address = |at: usize| IpAddr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    Some((address(12), address(16), ip[1], rest))
}

fn read_ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    let (ip, rest) = packet.split_first_chunk::<IPV6>()?;
    if ip[6] != PROTOCOL_UDP {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = ip[at..at + 16].try_into().ok()?;
        Some(IpAddr::from(octets))
    };
    Some((address(8)?, address(24)?, ip[0] << 4 | ip[1] >> 4, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let ports = (any::<u16>(), any::<u16>());
        let four = (any::<[u8; 4]>(), any::<[u8; 4]>(), ports).prop_map(|(one, other, at)| {
            (SocketAddr::new(one.into(), at.0), SocketAddr::new(other.into(), at.1))
        });
        let six = (any::<[u8; 16]>(), any::<[u8; 16]>(), ports)
            .prop_filter("not mapped", |(one, ..)| Ipv6Addr::from(*one).to_ipv4_mapped().is_none())
            .prop_map(|(one, other, at)| {
                (SocketAddr::new(one.into(), at.0), SocketAddr::new(other.into(), at.1))
            });
        prop_oneof![four, six]
    }

    proptest! {
        #[test]
        fn a_datagram_is_a_sound_frame((from, local) in addresses(), payload: Vec<u8>) {
            let mut frame = vec![0; headers(&local)];
            frame.extend(&payload);
            prop_assert_eq!(write(&mut frame, from, local), Some(()));
            let layers = fastlane_wire::Layers::parse(&frame);
            prop_assert!(layers.is_ok(), "{:?}", layers);
            // Read by the other end it is what was sent.
            let sent = read(&frame, &from);
            let expected = Datagram { to: local, class: 0, payload: &payload };
            prop_assert_eq!(sent, Some(expected));
            prop_assert_eq!(read(&frame, &SocketAddr::new(from.ip(), from.port() ^ 1)), None);
        }

        #[test]
        fn whatever_is_transmitted_is_read_or_refused(
            frame in prop::collection::vec(any::<u8>(), 0..128),
            (_, local) in addresses(),
        ) {
            if let Some(datagram) = read(&frame, &local) {
                prop_assert!(datagram.payload.len() < frame.len());
            }
        }
    }
}
