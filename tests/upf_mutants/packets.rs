//! Frames of gNBs and of the data network: GTP-U messages of every type and UE packets of many
//! kinds, mutated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_wire::checksum;

use crate::live_sessions::{LiveSessions, Session};
use crate::random::Random;

/// Addresses of the UPF on N3, IPv4 and IPv6.
pub(crate) const N3: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 30, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 1)),
];
/// Addresses of a gNB.
const GNB: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 30, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 2)),
];
/// Addresses of the host in the data network.
const DATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 60, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd60, 0, 0, 0, 0, 0, 0, 2)),
];
const GTP: u16 = 2152;
/// Maximum length of an IP packet in octets: the MTU.
const MAX_LENGTH: usize = 1500;

fn sum(octets: &mut [u8], at: usize) {
    let Some(field) = octets.get_mut(at..at + 2) else { return };
    field.fill(0);
    let sum = checksum::checksum(octets).to_be_bytes();
    octets[at..at + 2].copy_from_slice(&sum);
}

/// Builds an IP packet with valid lengths and checksum. Both addresses are of one family.
fn ip(addresses: [IpAddr; 2], protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    match addresses {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            let length = ((20 + payload.len()) as u16).to_be_bytes();
            let mut packet = vec![0x45, 0, length[0], length[1], 0, 9, 0, 0, ttl, protocol, 0, 0];
            packet.extend(from.octets());
            packet.extend(to.octets());
            sum(&mut packet, 10);
            packet.extend_from_slice(payload);
            packet
        }
        [from, to] => {
            let length = (payload.len() as u16).to_be_bytes();
            let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], protocol, ttl];
            let six = |it: IpAddr| match it {
                IpAddr::V4(it) => it.to_ipv6_mapped().octets(),
                IpAddr::V6(it) => it.octets(),
            };
            packet.extend(six(from));
            packet.extend(six(to));
            packet.extend_from_slice(payload);
            packet
        }
    }
}

/// Builds a UDP datagram, with a checksum over IPv6 and without one over IPv4.
fn udp(addresses: [IpAddr; 2], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let words = [ports[0], ports[1], length, 0];
    let mut datagram: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    datagram.extend_from_slice(payload);
    if let [IpAddr::V6(from), IpAddr::V6(to)] = addresses {
        let length = u32::from(length).to_be_bytes();
        let mut all = [&from.octets()[..], &to.octets()[..], &length, &[0, 0, 0, 17]].concat();
        let at = all.len();
        all.extend_from_slice(&datagram);
        sum(&mut all, at + 6);
        datagram.copy_from_slice(&all[at..]);
        if datagram[6..8] == [0, 0] {
            datagram[6..8].fill(0xff);
        }
    }
    datagram
}

fn ethernet(mac: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] =
        if packet.first().is_some_and(|it| it >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] };
    [&mac[..], &[2, 0, 0, 0, 0, 0x99], &kind, packet].concat()
}

/// Returns the addresses of a UE and of the data network, of one family.
fn ends(random: &mut Random, session: &Session) -> [IpAddr; 2] {
    let six = session.v6.filter(|_| session.v4.is_none() || random.is_one_in(3));
    match six {
        Some(prefix) => [IpAddr::V6(prefix), DATA[1]],
        None => {
            let any = || Ipv4Addr::new(10, 45, 0, 9);
            [IpAddr::V4(session.v4.unwrap_or_else(any)), DATA[0]]
        }
    }
}

/// Returns the protocol and the payload of a UE packet.
fn payload(random: &mut Random, ends: [IpAddr; 2]) -> (u8, Vec<u8>) {
    let length = if random.is_one_in(10) { 1500 } else { 60 };
    let content = random.octets(length);
    let ports = [*random.pick(&[53, 80, 1000, 4500, 5000]), *random.pick(&[9, 80, 1500])];
    match random.below(8) {
        0 => (1, [&[8, 0, 0, 0, 0, 1, 0, 1], &content[..]].concat()),
        1 => (58, [&[128, 0, 0, 0, 0, 1, 0, 1], &content[..]].concat()),
        2 => {
            let mut segment: Vec<u8> = ports.into_iter().flat_map(u16::to_be_bytes).collect();
            segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
            (6, [segment, content].concat())
        }
        3 => (50, content),
        // Hop-by-hop options, a fragment header, a router solicitation behind them.
        4 => (
            0,
            [&[44, 0, 1, 4, 0, 0, 0, 0, 58, 0, 0, 1, 0, 0, 0, 7, 133, 0, 0, 0], &content[..]]
                .concat(),
        ),
        _ => (17, udp(ends, ports, &content)),
    }
}

/// Builds a UE packet, sometimes a fragment or with a hop limit of 0 or 1.
fn ue_packet(random: &mut Random, ends: [IpAddr; 2]) -> Vec<u8> {
    let (protocol, content) = payload(random, ends);
    let ttl = *random.pick(&[64, 64, 64, 255, 1, 0]);
    let mut packet = ip(ends, protocol, ttl, &content);
    packet.truncate(MAX_LENGTH);
    if packet[0] == 0x45 && random.is_one_in(8) {
        let word: u16 = *random.pick(&[0x2000, 0x2001, 0x0001, 0x00b9, 0x1fff, 0x4000, 0x8000]);
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        sum(&mut packet[..20], 10);
    }
    if random.is_one_in(8) {
        packet[1] = random.octet();
    }
    packet
}

/// Returns the type of the first extension header and the chain of all.
fn extensions(random: &mut Random) -> (u8, Vec<u8>) {
    let (mut first, mut chain) = (0, Vec::new());
    for _ in 0..random.below(4) {
        let (kind, content): (u8, Vec<u8>) = match random.below(5) {
            0 => (0x40, vec![8, 0x68]),
            1 => (0xc0, vec![0, 1]),
            2 => (*random.pick(&[0x20, 0x82, 0x03, 0xff, 0x81]), vec![random.octet(), 0]),
            3 => (0x85, vec![random.octet(), random.octet(), random.octet(), 0, 0, 0]),
            _ => (0x85, vec![0x10, random.octet() & 0x3f]),
        };
        let units = (content.len() + 2) / 4;
        let one = [&[units as u8], &content[..], &[first]].concat();
        chain.splice(0..0, one);
        first = kind;
    }
    (first, chain)
}

fn gtp(random: &mut Random, kind: u8, teid: u32, content: &[u8]) -> Vec<u8> {
    let (first, chain) = extensions(random);
    // E, S and PN in all combinations; the four octets are present if any of them is set.
    let mut flags = 0x30 | random.below(4) as u8;
    if first != 0 {
        flags |= 4;
    }
    if matches!(kind, 1 | 2 | 26 | 31) {
        flags |= 2;
    }
    let mut options = Vec::new();
    if flags & 7 != 0 {
        options.extend([0, random.octet(), 0, first]);
        options.extend(chain);
    }
    let length = ((options.len() + content.len()) as u16).to_be_bytes();
    let mut message = vec![flags, kind, length[0], length[1]];
    message.extend(teid.to_be_bytes());
    message.extend(options);
    message.extend_from_slice(content);
    message
}

fn message(random: &mut Random, live: &LiveSessions) -> Vec<u8> {
    let none = Session::default();
    let session = live.pick(random).unwrap_or(&none).clone();
    let any = random.next() as u32;
    let known = session.tunnels.get(random.below(session.tunnels.len())).copied();
    let teid = known.filter(|_| !random.is_one_in(16)).unwrap_or(any);
    match random.below(24) {
        0 => gtp(random, 1, 0, &[]),
        1 => gtp(random, 2, 0, &[14, 0]),
        2 => {
            // The tunnel and the peer of an outer header that we have requests for.
            let mut content = vec![16];
            content.extend((random.next() as u32).to_be_bytes());
            content.extend([133, 0, 4, 10, 30, 0, 2 + random.below(4) as u8]);
            gtp(random, 26, 0, &content)
        }
        3 => gtp(random, 31, 0, &[141, 1, 0x85]),
        4 => gtp(random, 254, teid, &[]),
        5 => {
            let kind = random.octet();
            let content = random.octets(60);
            gtp(random, kind, teid, &content)
        }
        _ => {
            let ends = ends(random, &session);
            let inner = ue_packet(random, ends);
            gtp(random, 255, teid, &inner)
        }
    }
}

/// Repairs the length field of a GTP-U message.
fn repair(message: &mut [u8]) {
    let length = message.len().saturating_sub(8) as u16;
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// Kind of an uplink frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A valid frame.
    Valid,
    /// A mutated GTP-U message to the UPF.
    Mutated,
    /// Mutated outer headers. Linux may get the frame, or nobody.
    Stray,
}

/// Builds an uplink frame, mostly mutated.
pub(crate) fn uplink(random: &mut Random, mac: [u8; 6], live: &LiveSessions) -> (Vec<u8>, Kind) {
    let mut message = message(random, live);
    let mut kind = Kind::Valid;
    if !random.is_one_in(8) {
        kind = Kind::Mutated;
        for _ in 0..=random.below(3) {
            random.mutate(&mut message);
        }
        if !random.is_one_in(4) {
            repair(&mut message);
        }
    }
    let family = usize::from(random.is_one_in(4));
    let ends = [GNB[family], N3[family]];
    message.truncate(MAX_LENGTH - 48);
    let mut packet = ip(ends, 17, 64, &udp(ends, [GTP, GTP], &message));
    if random.is_one_in(50) {
        kind = Kind::Stray;
        random.mutate(&mut packet);
        packet.truncate(MAX_LENGTH);
    }
    (ethernet(mac, &packet), kind)
}

/// Builds a downlink frame, mutated half of the time.
pub(crate) fn downlink(random: &mut Random, mac: [u8; 6], live: &LiveSessions) -> Vec<u8> {
    let none = Session::default();
    let session = live.pick(random).unwrap_or(&none).clone();
    let [user, other] = ends(random, &session);
    let mut packet = ue_packet(random, [other, user]);
    if random.is_one_in(2) {
        // The addresses stay valid, so that steering claims the packet.
        let end = if packet[0] >> 4 == 6 { 40 } else { 20 };
        let mut behind = packet.split_off(end.min(packet.len()));
        random.mutate(&mut behind);
        packet.extend(behind);
        packet.truncate(MAX_LENGTH);
    }
    ethernet(mac, &packet)
}

/// Builds an Echo Request. Its response shows that the lane has processed everything before it.
pub(crate) fn echo_request(mac: [u8; 6], port: u16, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let message = [0x32, 1, 0, 4, 0, 0, 0, 0, high, low, 0, 0];
    let ends = [GNB[0], N3[0]];
    ethernet(mac, &ip(ends, 17, 64, &udp(ends, [port, GTP], &message)))
}

/// Returns the sequence number of an Echo Response to this port.
pub(crate) fn echo_response(frame: &[u8], port: u16) -> Option<u16> {
    let datagram = frame.get(34..)?;
    let is_ours = frame.get(12..15)? == [8, 0, 0x45] && datagram.get(2..4)? == port.to_be_bytes();
    let message = datagram.get(8..).filter(|message| is_ours && message.get(1) == Some(&2))?;
    Some(u16::from_be_bytes(*message.get(8..)?.first_chunk()?))
}
