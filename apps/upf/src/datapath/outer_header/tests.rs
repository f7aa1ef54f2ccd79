//! Compares the parser of usual frames with the one of all frames.

use std::net::Ipv4Addr;

use fastlane::wire::checksum::Sum;
use proptest::prelude::*;

use super::*;

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Creates a frame of GTP-U over IPv4: user data with or without a container, or an echo request.
fn frame(message_type: u8, container: bool, inner: usize, to: Ipv4Addr) -> Vec<u8> {
    let optional: &[u8] = if container { &[0, 0, 0, 0x85, 1, 0x10, 9, 0] } else { &[] };
    let gtpu = u16::try_from(optional.len() + inner).unwrap();
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    frame.extend([0x45, 0]);
    frame.extend((36 + gtpu).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1]);
    frame.extend(to.octets());
    frame.extend(2152_u16.to_be_bytes());
    frame.extend(2152_u16.to_be_bytes());
    frame.extend((16 + gtpu).to_be_bytes());
    frame.extend([0, 0, if container { 0x34 } else { 0x30 }, message_type]);
    frame.extend(gtpu.to_be_bytes());
    frame.extend([0, 0, 0, 7]);
    frame.extend(optional);
    frame.extend(std::iter::repeat_n(0x45, inner));
    frame
}

/// Exchanges the IPv4 header of a frame for an IPv6 header.
fn over_v6(frame: &[u8], to: Ipv6Addr) -> Vec<u8> {
    let (ethernet, rest) = frame.split_at(12);
    let udp = &rest[22..];
    let mut frame = ethernet.to_vec();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(u16::try_from(udp.len()).unwrap().to_be_bytes());
    frame.extend([17, 64]);
    frame.extend(OTHER6.octets());
    frame.extend(to.octets());
    frame.extend(udp);
    frame
}

/// Corrects the header checksum of a frame, as far as it has a header.
fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let sum = !Sum::new().add_bytes(header).fold();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let message_type = prop_oneof![4 => Just(255_u8), 1 => Just(1), 1 => any::<u8>()];
    let to = prop_oneof![4 => Just(OWN), 1 => Just(OTHER)];
    let octet =
        prop_oneof![any::<u8>(), Just(0), Just(1), (0..8_u8).prop_map(|bit| 1 << bit), Just(0x46),];
    // Most changes hit the lengths, flags and types between the EtherType and the inner packet.
    let changes = proptest::collection::vec((prop_oneof![0..80_usize, 12..58_usize], octet), 0..3);
    let padding = prop_oneof![2 => Just(0_isize), 1 => -30..30_isize];
    let whole = (message_type, any::<bool>(), prop_oneof![0..4_usize, 20..80_usize], to);
    let is_right = prop_oneof![6 => Just(true), 1 => Just(false)];
    (whole, changes, padding, is_right, any::<bool>()).prop_map(
        |((message_type, container, inner, to), changes, padding, is_right, is_v6)| {
            let mut frame = frame(message_type, container, inner, to);
            if is_v6 {
                frame = over_v6(&frame, if to == OWN { OWN6 } else { OTHER6 });
            }
            for (at, octet) in changes {
                if let Some(changed) = frame.get_mut(at) {
                    *changed = octet;
                }
            }
            frame.resize(frame.len().saturating_add_signed(padding), 0);
            if is_right && !is_v6 { with_checksum(frame) } else { frame }
        },
    )
}

fn roles() -> impl Strategy<Value = PortRole> {
    let interfaces = prop_oneof![Just(Some(3_u8)), Just(None)];
    (interfaces, proptest::option::of(Just(1)), any::<bool>()).prop_map(
        |(interface, ip, is_hairpin)| {
            PortRole::new4(OWN, interface, ip, is_hairpin).with6(OWN6, interface)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn usual_frames_are_parsed_as_all_frames_are(
        frame in frames(),
        role in roles(),
        port_mac in proptest::option::of(prop_oneof![3 => Just(MAC), 1 => Just([2; 6])]),
    ) {
        let all = read(&frame, &role, port_mac);
        match parse_usual(&frame, &role, port_mac) {
            None => {}
            // Only the header is parsed: the others may turn out to be wrong behind it.
            Some(FrameKind::Control(control)) => match all {
                FrameKind::Control(all) => {
                    let header = |message: GtpuPacket| {
                        let GtpuPacket { teid, end, gtp, message_type, .. } = message;
                        (teid, end, gtp, message_type, message.source_port, message.interface)
                    };
                    prop_assert_eq!(header(control), header(all));
                }
                all => prop_assert_eq!(all, FrameKind::Drop(DropReason::Malformed)),
            },
            Some(usual) => prop_assert_eq!(usual, all),
        }
    }
}

#[test]
fn what_is_usual_takes_the_short_way() {
    let role = PortRole::new4(OWN, Some(3), Some(1), false).with6(OWN6, Some(3));
    for container in [false, true] {
        let user_data = with_checksum(frame(255, container, 40, OWN));
        let found = parse_usual(&user_data, &role, Some(MAC));
        assert!(matches!(found, Some(FrameKind::Data(_))), "{found:?}");
        let user_data = over_v6(&user_data, OWN6);
        let found = parse_usual(&user_data, &role, Some(MAC));
        assert!(matches!(found, Some(FrameKind::Data(_))), "{found:?}");
    }
    let echo = with_checksum(frame(1, false, 4, OWN));
    assert!(matches!(parse_usual(&echo, &role, None), Some(FrameKind::Control(_))));
    let without_tunnel = with_checksum(frame(255, false, 40, OTHER));
    let found = parse_usual(&without_tunnel, &role, None);
    assert_eq!(found, Some(FrameKind::Ip { is_v6: false }));
}
