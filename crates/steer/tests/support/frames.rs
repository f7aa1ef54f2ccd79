//! Random frames: stacks of headers that are cut and damaged. Their values come from the same small
//! pools as those of the rules, so that many frames nearly match.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use proptest::{collection::vec, option, prelude::*, sample::select};

pub(crate) const PORTS: [u16; 8] = [0, 53, 80, 2151, 2152, 2153, 40_000, 65_535];
/// IP protocols, including IPv6 extension headers, which are ordinary protocols in IPv4.
pub(crate) const PROTOCOLS: [u8; 9] = [6, 17, 1, 58, 132, 59, 0, 43, 60];
pub(crate) const V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 128, 1),
    Ipv4Addr::new(10, 255, 0, 1),
    Ipv4Addr::new(192, 168, 7, 9),
    Ipv4Addr::new(224, 0, 0, 251),
];
pub(crate) const V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 1, 1),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
];
/// VLAN identifiers of rules.
pub(crate) const VLANS: [u16; 3] = [1, 100, 4094];
pub(crate) const ETHERTYPES: [u16; 4] = [0x0800, 0x86dd, 0x0806, 0x88cc];

/// Frame, shown in hexadecimal when a test fails.
#[derive(Clone)]
pub(crate) struct Frame(pub(crate) Vec<u8>);

impl fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(formatter, "{octet:02x}"))
    }
}

/// Generates frames of the given lengths. The longest have IPv6 extension headers.
pub(crate) fn frame(lengths: RangeInclusive<usize>) -> impl Strategy<Value = Frame> {
    let damage = prop_oneof![9 => Just(None), 1 => any::<(usize, u8)>().prop_map(Some)];
    let cut = prop_oneof![4 => Just(None), 1 => any::<usize>().prop_map(Some)];
    (tags(), network(), cut, damage).prop_map(move |(tags, (ethertype, rest), cut, damage)| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (kind, identifier) in tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(identifier.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(rest);
        if let Some((offset, octet)) = damage {
            let offset = 12 + offset % (frame.len() - 12);
            frame[offset] = octet;
        }
        if let Some(cut) = cut {
            frame.truncate(cut % frame.len());
        }
        frame.resize(frame.len().clamp(*lengths.start(), *lengths.end()), 0);
        Frame(frame)
    })
}

/// Generates up to three VLAN tags.
fn tags() -> impl Strategy<Value = Vec<(u16, u16)>> {
    let control = |(vlan, priority): (u16, u16)| vlan | priority << 12;
    let of_rules = (select(VLANS.to_vec()), 0..16_u16).prop_map(control);
    let control = prop_oneof![3 => of_rules, 1 => any::<u16>(), 1 => Just(0)];
    let tag = move || (select(vec![0x8100, 0x8100, 0x88a8]), control.clone());
    prop_oneof![4 => vec(tag(), 0..1), 3 => vec(tag(), 1..3), 1 => vec(tag(), 3..4)]
}

/// Generates an EtherType and its payload.
fn network() -> impl Strategy<Value = (u16, Vec<u8>)> {
    prop_oneof![
        5 => ipv4().prop_map(|packet| (0x0800, packet)),
        5 => ipv6().prop_map(|packet| (0x86dd, packet)),
        1 => (select(ETHERTYPES.to_vec()), vec(any::<u8>(), 0..64)),
        1 => (any::<u16>(), vec(any::<u8>(), 0..64)),
    ]
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let options = (5..16_u8).prop_map(|words| 0x40 | words);
    let first = prop_oneof![5 => Just(0x45), 4 => options, 1 => any::<u8>()];
    let fragment = prop_oneof![
        6 => select(vec![0, 0x4000, 0x8000]),
        1 => select(vec![0x2000, 0x2001, 0x0001, 0x1fff]),
        1 => any::<u16>(),
    ];
    let addresses = (select(V4.to_vec()), select(V4.to_vec()));
    (first, fragment, addresses, transport()).prop_map(
        |(first, fragment, (source, destination), (protocol, payload))| {
            let mut packet = vec![0; usize::from(first & 0xf).max(5) * 4];
            packet[0] = first;
            packet[6..8].copy_from_slice(&fragment.to_be_bytes());
            packet[9] = protocol;
            packet[12..16].copy_from_slice(&source.octets());
            packet[16..20].copy_from_slice(&destination.octets());
            packet.extend(payload);
            packet
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![19 => Just(0x60), 1 => any::<u8>()];
    let kind = prop_oneof![9 => select(vec![0, 43, 60]), 1 => select(vec![44, 51, 59])];
    let extension = (kind, prop_oneof![9 => 0..3_u8, 1 => any::<u8>()]);
    let extensions = prop_oneof![
        4 => vec(extension.clone(), 0..1),
        3 => vec(extension.clone(), 1..6),
        1 => vec(extension, 6..9),
    ];
    let addresses = (select(V6.to_vec()), select(V6.to_vec()));
    (first, extensions, addresses, transport()).prop_map(
        |(first, extensions, (source, destination), (protocol, payload))| {
            let mut packet = vec![0; 40];
            packet[0] = first;
            packet[8..24].copy_from_slice(&source.octets());
            packet[24..40].copy_from_slice(&destination.octets());
            let kinds = extensions.iter().map(|(kind, _)| *kind).chain([protocol]);
            let mut kinds = kinds.collect::<Vec<_>>().into_iter();
            packet[6] = kinds.next().unwrap_or(59);
            for ((_, length), next) in extensions.iter().zip(kinds) {
                let start = packet.len();
                packet.resize(start + (usize::from(*length) + 1) * 8, 0);
                packet[start] = next;
                packet[start + 1] = *length;
            }
            packet.extend(payload);
            packet
        },
    )
}

/// Generates an IP protocol and its payload.
fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let port = || prop_oneof![9 => select(PORTS.to_vec()), 1 => any::<u16>()];
    prop_oneof![
        5 => (port(), port(), gtp_u()).prop_map(|(source, destination, payload)| {
            let mut datagram = [source.to_be_bytes(), destination.to_be_bytes(), [0; 2], [0; 2]]
                .concat();
            datagram.extend(payload);
            (17, datagram)
        }),
        3 => (port(), port()).prop_map(|(source, destination)| {
            let mut segment = vec![0; 24];
            segment[..2].copy_from_slice(&source.to_be_bytes());
            segment[2..4].copy_from_slice(&destination.to_be_bytes());
            (6, segment)
        }),
        2 => (select(PROTOCOLS.to_vec()), vec(any::<u8>(), 0..32)),
    ]
}

/// Generates a GTP-U header, complete or cut, or other bytes.
fn gtp_u() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![5 => 0x30..0x38_u8, 1 => any::<u8>()];
    let message = (flags, option::of(0..12_usize)).prop_map(|(flags, length)| {
        let mut message = vec![flags, 0xff, 0, 4, 0, 0, 0, 1, 1, 2, 3, 4];
        message.truncate(length.unwrap_or(message.len()));
        message
    });
    prop_oneof![3 => message, 1 => vec(any::<u8>(), 0..16)]
}
