//! Seeds of the fuzzers: one small input for each path through the parsers.

use fastlane_wire::{IpProtocol, Layers, checksum};

use crate::built::{Extension, Frame};
use crate::real;

type Seeds = Vec<(String, Vec<u8>)>;

/// Returns the seeds by target.
pub(crate) fn all() -> [(&'static str, Seeds); 3] {
    let frames = frames();
    let mut layers = frames.clone();
    layers.extend(cuts());
    let mut checksums: Seeds =
        frames.into_iter().map(|(name, frame)| (name, with_offset(frame))).collect();
    checksums.extend(partial_frames().into_iter().map(|(name, frame)| (name, with_offset(frame))));
    [("layers", layers), ("checksum", checksums), ("gtpu", messages())]
}

fn frames() -> Seeds {
    let mut seeds: Seeds = [
        ("real-udp4", real::UDP4),
        ("real-udp6", real::UDP6),
        ("real-tcp4", real::TCP4),
        ("real-tcp6", real::TCP6),
        ("real-ping4", real::PING4),
        ("real-neighbor-solicitation", real::NEIGHBOR_SOLICITATION),
        ("real-multicast-report", real::MULTICAST_REPORT),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes.to_vec()))
    .into();
    let mut arp = [0; 42];
    arp[12..22].copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    seeds.push(("arp".to_owned(), arp.to_vec()));
    seeds.push(("llc".to_owned(), [[0xff; 12].as_slice(), &[0, 3, 0x42, 0x42, 3]].concat()));

    let hop_by_hop = Extension::Options { protocol: IpProtocol::HOP_BY_HOP, units: 0 };
    let options = Extension::Options { protocol: IpProtocol::DESTINATION_OPTIONS, units: 1 };
    let routing = Extension::Routing { units: 2 };
    let authentication = Extension::Authentication { words: 3 };
    let all = vec![hop_by_hop, options, routing, Extension::Atomic, authentication];
    let plain = Frame::default;
    for (name, frame) in [
        ("vlan", Frame { vlans: vec![5], ..plain() }),
        ("vlan-two", Frame { vlans: vec![5, 6], ..plain() }),
        ("vlan-three", Frame { vlans: vec![5, 6, 7], ..plain() }),
        ("ipv4-options", Frame { options: 4, ..plain() }),
        ("ipv4-options-most", Frame { options: 40, tcp: true, ..plain() }),
        ("ipv4-fragment-first", Frame { fragment: Some((0, true)), ..plain() }),
        ("ipv4-fragment-later", Frame { fragment: Some((185, true)), ..plain() }),
        ("ipv4-fragment-last", Frame { fragment: Some((370, false)), ..plain() }),
        ("ipv4-padded", Frame { padding: vec![0xaa; 18], ..plain() }),
        ("ipv4-empty", Frame { payload: Vec::new(), ..plain() }),
        ("ipv6-tcp", Frame { ipv6: true, tcp: true, ..plain() }),
        ("ipv6-fragment-first", Frame { ipv6: true, fragment: Some((0, true)), ..plain() }),
        ("ipv6-fragment-later", Frame { ipv6: true, fragment: Some((1, false)), ..plain() }),
        ("ipv6-hop-by-hop", Frame { ipv6: true, extensions: vec![hop_by_hop], ..plain() }),
        ("ipv6-routing", Frame { ipv6: true, extensions: vec![routing], ..plain() }),
        ("ipv6-atomic", Frame { ipv6: true, extensions: vec![Extension::Atomic], ..plain() }),
        ("ipv6-authentication", Frame { ipv6: true, extensions: vec![authentication], ..plain() }),
        ("ipv6-all", Frame { ipv6: true, vlans: vec![9], extensions: all, ..plain() }),
        ("ipv6-eight", Frame { ipv6: true, extensions: vec![options; 8], ..plain() }),
        ("ipv6-nine", Frame { ipv6: true, extensions: vec![options; 9], ..plain() }),
    ] {
        seeds.push((name.to_owned(), frame.build()));
    }
    let mut odd = Frame { payload: vec![0xff; 3], ..plain() }.build();
    odd[14] = 0x4f; // options beyond the packet
    seeds.push(("ipv4-options-too-long".to_owned(), odd.clone()));
    odd[14] = 0x44;
    seeds.push(("ipv4-header-too-short".to_owned(), odd));
    seeds
}

/// Returns frames that are cut in the middle of each header.
fn cuts() -> Seeds {
    let ipv4 = Frame { vlans: vec![1, 2], options: 8, ..Frame::default() }.build();
    let hop_by_hop = Extension::Options { protocol: IpProtocol::HOP_BY_HOP, units: 1 };
    let extensions = vec![hop_by_hop, Extension::Authentication { words: 1 }];
    let ipv6 = Frame { ipv6: true, tcp: true, extensions, ..Frame::default() }.build();
    let mut seeds = Seeds::new();
    for length in [0, 1, 13, 14, 16, 20, 30, 45, 52, 60] {
        seeds.push((format!("cut-ipv4-{length}"), ipv4[..length].to_vec()));
    }
    for length in [15, 53, 55, 60, 70, 75, 90, 108] {
        seeds.push((format!("cut-ipv6-{length}"), ipv6[..length].to_vec()));
    }
    seeds
}

/// Prepends the offset of a frame's transport checksum, as the fuzz target expects it.
fn with_offset(frame: Vec<u8>) -> Vec<u8> {
    let (start, offset): (u16, u16) = match Layers::parse(&frame) {
        Ok(layers) if layers.carries(IpProtocol::TCP) => (layers.transport, 16),
        Ok(layers) if layers.carries(IpProtocol::UDP) => (layers.transport, 6),
        _ => (14, 2),
    };
    let position = [start.to_be_bytes(), offset.to_be_bytes()].concat();
    [position, frame].concat()
}

fn partial_frames() -> Seeds {
    let mut seeds: Seeds = [
        ("partial-udp4", real::UDP4_PARTIAL),
        ("partial-udp6", real::UDP6_PARTIAL),
        ("partial-tcp4", real::TCP4_PARTIAL),
        ("partial-tcp6", real::TCP6_PARTIAL),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes.to_vec()))
    .into();
    let padding = vec![0x55; 7];
    let mut tagged = Frame { vlans: vec![3], padding, ..Frame::default() }.build();
    let layers = Layers::parse(&tagged).unwrap();
    checksum::make_partial(&mut tagged, &layers).unwrap();
    seeds.push(("partial-vlan-padded".to_owned(), tagged));
    seeds
}

fn messages() -> Seeds {
    let inner4 = Frame::default().build()[14..].to_vec();
    let inner6 = Frame { ipv6: true, ..Frame::default() }.build()[14..].to_vec();
    let session = [0, 0, 0, 0x85, 1, 0x10, 9, 0];
    let long_session = [0, 0, 0, 0x85, 2, 0x00, 0xc5, 0x20, 0, 0, 0, 0];
    let chain = [0, 0, 0, 0x40, 1, 8, 0x68, 0x20, 1, 0, 0, 0xc0, 1, 0, 0, 0x85, 1, 0, 1, 0];
    let nine = [[0, 0, 0, 0x20].as_slice(), &[1, 0, 0, 0x20].repeat(9)].concat();
    let mut seeds = Seeds::new();
    let mut add = |name: &str, flags: u8, message_type: u8, rest: &[&[u8]]| {
        let rest = rest.concat();
        let [high, low] = (rest.len() as u16).to_be_bytes();
        let bytes = [[flags, message_type, high, low, 0, 0, 0, 1].as_slice(), &rest].concat();
        seeds.push((name.to_owned(), bytes));
    };
    add("plain-ipv4", 0x30, 255, &[&inner4]);
    add("plain-ipv6", 0x30, 255, &[&inner6]);
    add("plain-empty", 0x30, 255, &[]);
    add("sequence", 0x32, 255, &[&[0, 7, 0, 0], &inner4]);
    add("n-pdu", 0x31, 255, &[&[0, 0, 5, 0], &inner4]);
    add("all-flags", 0x37, 255, &[&[0, 7, 5, 0], &inner6]);
    add("session-uplink", 0x34, 255, &[&session, &inner4]);
    add("session-downlink", 0x34, 255, &[&long_session, &inner6]);
    add("session-sequence", 0x36, 255, &[&session, &inner6]);
    add("chain", 0x34, 255, &[&chain, &inner4]);
    add("chain-nine", 0x34, 255, &[&nine, &inner4]);
    add("chain-endless", 0x34, 255, &[&nine, &[1, 0, 0, 0x20].repeat(20)]);
    add("extension-none", 0x34, 255, &[&[0, 0, 0, 0], &inner4]);
    add("extension-zero-units", 0x34, 255, &[&[0, 0, 0, 0x85, 0, 0, 0, 0]]);
    add("extension-too-long", 0x34, 255, &[&[0, 0, 0, 0x85, 9, 0, 0, 0], &inner4[..8]]);
    add("optional-cut", 0x33, 255, &[&[0, 0, 0]]);
    add("echo-request", 0x32, 1, &[&[0, 1, 0, 0]]);
    add("echo-response", 0x32, 2, &[&[0, 1, 0, 0, 14, 0]]);
    add("error-indication", 0x32, 26, &[&[0, 0, 0, 0, 16, 0, 0, 0, 1, 133, 0, 4, 10, 0, 0, 1]]);
    add("end-marker", 0x30, 254, &[]);
    add("end-marker-session", 0x34, 254, &[&session]);
    add("supported-extensions", 0x32, 31, &[&[0, 0, 0, 0, 141, 1, 0x85]]);
    add("gtp-prime", 0x20, 255, &[&inner4]);
    add("version-2", 0x50, 1, &[&[0, 0, 0, 0]]);
    let (_, whole) = seeds[6].clone();
    for length in [0, 3, 7, 8, 11, 15, 16, 30] {
        seeds.push((format!("cut-{length}"), whole[..length].to_vec()));
    }
    seeds
}
