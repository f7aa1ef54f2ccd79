//! Frames of base stations and of the data network: GTP-U of every type, users' packets of every
//! kind, and then changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_wire::checksum;

use crate::chance::Chance;
use crate::live::{Live, Session};

/// Where the UPF is on N3, and a base station.
pub(crate) const N3: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 30, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 1)),
];
const GNB: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 30, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 2)),
];
/// The data network's host.
const DATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 60, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd60, 0, 0, 0, 0, 0, 0, 2)),
];
const GTP: u16 = 2152;
/// The longest packet that fits a wire's frame.
const MOST: usize = 1500;

fn sum(octets: &mut [u8], at: usize) {
    let Some(field) = octets.get_mut(at..at + 2) else { return };
    field.fill(0);
    let sum = checksum::checksum(octets).to_be_bytes();
    octets[at..at + 2].copy_from_slice(&sum);
}

/// An IP packet with right lengths and sums; both addresses are of one family.
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

/// A UDP datagram; its sum is right over IPv6, where it must be there, and missing over IPv4.
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

/// Both addresses of a packet: a user's and another one, of one family.
fn ends(chance: &mut Chance, session: &Session) -> [IpAddr; 2] {
    let six = session.v6.filter(|_| session.v4.is_none() || chance.is_one_in(3));
    match six {
        Some(prefix) => [IpAddr::V6(prefix), DATA[1]],
        None => {
            let any = || Ipv4Addr::new(10, 45, 0, 9);
            [IpAddr::V4(session.v4.unwrap_or_else(any)), DATA[0]]
        }
    }
}

/// What is in a user's packet, and its protocol.
fn payload(chance: &mut Chance, ends: [IpAddr; 2]) -> (u8, Vec<u8>) {
    let length = if chance.is_one_in(10) { 1500 } else { 60 };
    let content = chance.octets(length);
    let ports = [*chance.pick(&[53, 80, 1000, 4500, 5000]), *chance.pick(&[9, 80, 1500])];
    match chance.below(8) {
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

/// A user's packet, fragments and headers of few hops among them.
fn users(chance: &mut Chance, ends: [IpAddr; 2]) -> Vec<u8> {
    let (protocol, content) = payload(chance, ends);
    let ttl = *chance.pick(&[64, 64, 64, 255, 1, 0]);
    let mut packet = ip(ends, protocol, ttl, &content);
    packet.truncate(MOST);
    if packet[0] == 0x45 && chance.is_one_in(8) {
        let word: u16 = *chance.pick(&[0x2000, 0x2001, 0x0001, 0x00b9, 0x1fff, 0x4000, 0x8000]);
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        sum(&mut packet[..20], 10);
    }
    if chance.is_one_in(8) {
        packet[1] = chance.octet();
    }
    packet
}

/// The extension headers of a message, with the type of the first one.
fn extensions(chance: &mut Chance) -> (u8, Vec<u8>) {
    let (mut first, mut chain) = (0, Vec::new());
    for _ in 0..chance.below(4) {
        let (kind, content): (u8, Vec<u8>) = match chance.below(5) {
            0 => (0x40, vec![8, 0x68]),
            1 => (0xc0, vec![0, 1]),
            2 => (*chance.pick(&[0x20, 0x82, 0x03, 0xff, 0x81]), vec![chance.octet(), 0]),
            3 => (0x85, vec![chance.octet(), chance.octet(), chance.octet(), 0, 0, 0]),
            _ => (0x85, vec![0x10, chance.octet() & 0x3f]),
        };
        let units = (content.len() + 2) / 4;
        let one = [&[units as u8], &content[..], &[first]].concat();
        chain.splice(0..0, one);
        first = kind;
    }
    (first, chain)
}

fn gtp(chance: &mut Chance, kind: u8, teid: u32, content: &[u8]) -> Vec<u8> {
    let (first, chain) = extensions(chance);
    // E, S and PN in all combinations; the four octets are there if any of them is set.
    let mut flags = 0x30 | chance.below(4) as u8;
    if first != 0 {
        flags |= 4;
    }
    if matches!(kind, 1 | 2 | 26 | 31) {
        flags |= 2;
    }
    let mut options = Vec::new();
    if flags & 7 != 0 {
        options.extend([0, chance.octet(), 0, first]);
        options.extend(chain);
    }
    let length = ((options.len() + content.len()) as u16).to_be_bytes();
    let mut message = vec![flags, kind, length[0], length[1]];
    message.extend(teid.to_be_bytes());
    message.extend(options);
    message.extend_from_slice(content);
    message
}

fn message(chance: &mut Chance, live: &Live) -> Vec<u8> {
    let none = Session::default();
    let session = live.pick(chance).unwrap_or(&none).clone();
    let any = chance.next() as u32;
    let known = session.tunnels.get(chance.below(session.tunnels.len())).copied();
    let teid = known.filter(|_| !chance.is_one_in(16)).unwrap_or(any);
    match chance.below(24) {
        0 => gtp(chance, 1, 0, &[]),
        1 => gtp(chance, 2, 0, &[14, 0]),
        2 => {
            // The tunnel and the peer of an outer header that we have asked for.
            let mut content = vec![16];
            content.extend((chance.next() as u32).to_be_bytes());
            content.extend([133, 0, 4, 10, 30, 0, 2 + chance.below(4) as u8]);
            gtp(chance, 26, 0, &content)
        }
        3 => gtp(chance, 31, 0, &[141, 1, 0x85]),
        4 => gtp(chance, 254, teid, &[]),
        5 => {
            let kind = chance.octet();
            let content = chance.octets(60);
            gtp(chance, kind, teid, &content)
        }
        _ => {
            let ends = ends(chance, &session);
            let inner = users(chance, ends);
            gtp(chance, 255, teid, &inner)
        }
    }
}

/// Repairs what the octets of a message say of themselves.
fn repair(message: &mut [u8]) {
    let length = message.len().saturating_sub(8) as u16;
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// What a frame of a base station is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As base stations send it.
    Valid,
    /// GTP-U to the UPF, changed.
    Changed,
    /// Even the headers around it are changed: it may be for Linux, or for nobody.
    Stray,
}

/// A frame of a base station.
pub(crate) fn uplink(chance: &mut Chance, mac: [u8; 6], live: &Live) -> (Vec<u8>, Kind) {
    let mut message = message(chance, live);
    let mut kind = Kind::Valid;
    if !chance.is_one_in(8) {
        kind = Kind::Changed;
        for _ in 0..=chance.below(3) {
            chance.change(&mut message);
        }
        if !chance.is_one_in(4) {
            repair(&mut message);
        }
    }
    let family = usize::from(chance.is_one_in(4));
    let ends = [GNB[family], N3[family]];
    message.truncate(MOST - 48);
    let mut packet = ip(ends, 17, 64, &udp(ends, [GTP, GTP], &message));
    if chance.is_one_in(50) {
        kind = Kind::Stray;
        chance.change(&mut packet);
        packet.truncate(MOST);
    }
    (ethernet(mac, &packet), kind)
}

/// A frame of the data network to a user, changed or not.
pub(crate) fn downlink(chance: &mut Chance, mac: [u8; 6], live: &Live) -> Vec<u8> {
    let none = Session::default();
    let session = live.pick(chance).unwrap_or(&none).clone();
    let [user, other] = ends(chance, &session);
    let mut packet = users(chance, [other, user]);
    if chance.is_one_in(2) {
        // The addresses stay, so that it reaches the UPF.
        let end = if packet[0] >> 4 == 6 { 40 } else { 20 };
        let mut behind = packet.split_off(end.min(packet.len()));
        chance.change(&mut behind);
        packet.extend(behind);
        packet.truncate(MOST);
    }
    ethernet(mac, &packet)
}

/// An echo request of a base station, by which it is seen that all before it was dealt with.
pub(crate) fn echo(mac: [u8; 6], port: u16, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let message = [0x32, 1, 0, 4, 0, 0, 0, 0, high, low, 0, 0];
    let ends = [GNB[0], N3[0]];
    ethernet(mac, &ip(ends, 17, 64, &udp(ends, [port, GTP], &message)))
}

/// The number of the echo request that a frame answers, if it is one to this port.
pub(crate) fn echoed(frame: &[u8], port: u16) -> Option<u16> {
    let datagram = frame.get(34..)?;
    let is_ours = frame.get(12..15)? == [8, 0, 0x45] && datagram.get(2..4)? == port.to_be_bytes();
    let message = datagram.get(8..).filter(|message| is_ours && message.get(1) == Some(&2))?;
    Some(u16::from_be_bytes(*message.get(8..)?.first_chunk()?))
}
