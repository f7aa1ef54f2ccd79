//! Downlink packets.

use fastlane_core::Partial;
use fastlane_wire::Layers;
use fastlane_wire::checksum::{Sum, verify_transport};
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::{Rules, flag, forwarding};

use crate::frames::{ethernet, fill, g_pdu, gtpu, ipv6, opened, udp, ue4};
use crate::test_lane::*;

fn inner() -> Vec<u8> {
    ue4(SERVER, USER, 64, 20)
}

/// Returns the rules of an intermediate UPF: from the anchor through one tunnel, to the gNB through
/// another.
fn between_tunnels() -> Rules {
    let mut rules = simple(2);
    rules.uplink.common.flags = 0;
    rules.downlink.common.flags = flag::PRESENT | flag::TUNNEL;
    rules.downlink.common.tunnel = teid(SESSION);
    rules
}

fn a_hop_less(mut packet: Vec<u8>) -> Vec<u8> {
    packet[8] -= 1;
    fill(&mut packet);
    packet
}

#[test]
fn case_64_and_73_the_outer_header_is_as_the_rules_say() {
    let mut world = TestLane::with_user();
    let mut padded = ethernet(N6, &inner());
    padded.extend([0; 6]);
    world.show(N6, &[padded]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let (teid, container, packet) = opened(frame);
    assert_eq!((teid, &container[..], packet), (GNB_TEID, &[1, 0, 9, 0][..], a_hop_less(inner())));
    assert_eq!(world.usage(), [0, 0, inner().len() as u64, 1]);

    // Reflective QoS and paging policy; DSCP by the rules, ECN from the inner header.
    let mut rules = simple(2);
    rules.downlink.common.forwarding.quality |=
        forwarding::REFLECTIVE | forwarding::PAGING | 5 << forwarding::PAGING_SHIFT;
    (rules.downlink.common.forwarding.marking, rules.downlink.common.forwarding.mask) =
        (46 << 2, 0xfc);
    world.publish(&rules);
    let mut marked = inner();
    marked[1] = 0x22;
    fill(&mut marked);
    world.show(N6, &[ethernet(N6, &marked)]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let (_, container, _) = opened(frame);
    assert_eq!((frame[15], &container[..]), (46 << 2 | 2, &[2, 0, 0xc9, 0xa0, 0, 0, 0, 0][..]));

    // No QFI, no container.
    let mut rules = simple(3);
    rules.downlink.common.forwarding.quality = 0;
    world.publish(&rules);
    world.show(N6, &[ethernet(N6, &inner())]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!((frame[42], opened(frame).1), (0x30, vec![]));
    world.check();
}

#[test]
fn case_73_over_ipv6_udp_has_a_checksum() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.downlink.common.forwarding.what |= forwarding::V6;
    rules.downlink.peer6 = "fd03::9".parse::<std::net::Ipv6Addr>().expect("an address").octets();
    world.publish(&rules);
    let v6 = ipv6("2001:db8:7::7", &ue6().to_string(), 17, 64, &udp(1, 2, b"odd"));
    world.show(N6, &[ethernet(N6, &inner()), ethernet(N6, &v6)]);
    let left = world.left(N3);
    assert_eq!(left.len(), 2, "{:?}", world.drop_reasons());
    for frame in &left {
        let layers = Layers::parse(frame).expect("it parses");
        assert_eq!(verify_transport(frame, &layers), Ok(true));
        assert_ne!(frame[60..62], [0, 0]);
    }
    let mut expected = v6;
    expected[7] -= 1;
    assert_eq!(left[1][14 + 40 + 8 + 16..], expected);
    world.check();
}

#[test]
fn what_is_no_users_is_linuxs_and_what_is_a_pools_is_nobodys() {
    let mut world = TestLane::with_user();
    let other = ethernet(N6, &ue4(SERVER, [198, 51, 100, 1], 64, 4));
    let arp = [&PORT_MAC[1][..], &NEIGHBOUR_MAC[1], &[8, 6], &[0; 28]].concat();
    let nobody = ethernet(N6, &ue4(SERVER, [10, 45, 9, 9], 64, 4));
    let mut station = ethernet(N6, &inner());
    station[5] ^= 1;
    // GTP-U to a local address from the data network.
    let through = crate::frames::ipv4(SERVER, OUR, 17, 9, &udp(1, 2152, &gtpu(0x30, 255, 1, &[])));
    let through = ethernet(N6, &through);
    world.show(N6, &[other.clone(), arp.clone(), nobody, station.clone(), through]);
    assert_eq!(world.linux(), [other, arp, station]);
    assert_eq!(
        (world.count(DropReason::UnknownUser), world.count(DropReason::WrongInterface)),
        (1, 1)
    );
    // Packets other than GTP-U on N3 belong to Linux, for example PFCP.
    let pfcp = ethernet(N3, &crate::frames::ipv4(GNB, OUR, 17, 9, &udp(8805, 8805, b"pfcp")));
    world.show(N3, std::slice::from_ref(&pfcp));
    assert_eq!(world.linux(), [pfcp]);
    world.check();
}

#[test]
fn case_72_too_long_is_told_with_the_right_mtu_or_cut_up() {
    let mut world = TestLane::with_user();
    // 1500 less IPv4, UDP, GTP-U with container.
    let most = 1500 - 20 - 8 - 16;
    let mut fits = ue4(SERVER, USER, 64, most - 28);
    fits[6] = 0x40;
    fill(&mut fits);
    let mut long = ue4(SERVER, USER, 64, most - 27);
    long[6] = 0x40;
    fill(&mut long);
    world.show(N6, &[ethernet(N6, &fits), ethernet(N6, &long)]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!(frame.len(), 1514);
    let [error] = &world.left(N6)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!((&error[30..34], error[34], error[35]), (&SERVER[..], 3, 4));
    assert_eq!(error[40..42], (most as u16).to_be_bytes());
    assert_eq!(error[42..42 + 28], long[..28]);

    let v6 = ipv6("2001:db8:7::7", &ue6().to_string(), 17, 64, &udp(1, 2, &vec![1; 1450]));
    world.show(N6, &[ethernet(N6, &v6)]);
    let [error] = &world.left(N6)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!((error[54], &error[58..62]), (2, &(most as u32).to_be_bytes()[..]));
    assert_eq!(world.count(DropReason::TooLong), 2);

    let loose = ue4(SERVER, USER, 64, 2000);
    world.show(N6, &[ethernet(N6, &loose)]);
    let pieces: Vec<_> = world.left(N3).iter().map(|frame| opened(frame).2).collect();
    assert_eq!((pieces.len(), world.count(DropReason::Fragmented)), (2, 2));
    let mut whole: Vec<u8> = vec![];
    for piece in &pieces {
        assert!(piece.len() <= most && fastlane_wire::checksum::checksum(&piece[..20]) == 0);
        let offset = usize::from(u16::from_be_bytes([piece[6] & 0x1f, piece[7]])) * 8;
        assert_eq!((offset, piece[6] & 0x20 != 0), (whole.len(), whole.is_empty()));
        whole.extend(&piece[20..]);
    }
    assert_eq!(whole, loose[20..]);
    world.check();
}

/// Returns the packet that was sent in these fragments.
fn joined(pieces: &[Vec<u8>]) -> Vec<u8> {
    let head = pieces.first().map(|first| first[..20].to_vec()).unwrap_or_default();
    pieces.iter().fold(head, |whole, piece| [&whole[..], &piece[20..]].concat())
}

#[test]
fn a_checksum_that_is_left_to_the_device_is_right_in_fragments_too() {
    let mut world = TestLane::with_user();
    let mut loose = ue4(SERVER, USER, 64, 2000);
    let of_addresses = Sum::pseudo_ipv4(SERVER, USER, 17, (loose.len() - 20) as u16);
    loose[26..28].copy_from_slice(&(!of_addresses.checksum()).to_be_bytes());
    world.leave_checksum(N6, Some(Partial { start: 34, offset: 6 }));
    world.show(N6, &[ethernet(N6, &loose)]);
    let pieces: Vec<_> = world.left(N3).iter().map(|frame| opened(frame).2).collect();
    let whole = joined(&pieces);
    assert_eq!((pieces.len(), whole.len()), (2, loose.len()));
    assert_ne!(whole[26..28], loose[26..28]);
    let sum = Sum::pseudo_ipv4(SERVER, USER, 17, (whole.len() - 20) as u16);
    assert_eq!(sum.add_bytes(&whole[20..]).checksum(), 0, "{:x?}", &whole[20..28]);
    world.check();
}

#[test]
fn fragments_between_tunnels_keep_their_hops_and_are_downlink() {
    let mut world = TestLane::with_user();
    world.publish(&between_tunnels());
    let loose = ue4(SERVER, USER, 1, 2000);
    let message = gtpu(0x30, 255, teid(SESSION), &loose);
    world.show(N3, &[crate::frames::from_gnb(&message)]);
    let pieces: Vec<_> = world.left(N3).iter().map(|frame| opened(frame).2).collect();
    assert_eq!(pieces.iter().map(|piece| piece[8]).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(joined(&pieces)[20..], loose[20..]);
    let forwarded = [DropReason::ForwardedUplink, DropReason::ForwardedDownlink];
    assert_eq!(forwarded.map(|reason| world.count(reason)), [0, 1]);
    world.check();
}

#[test]
fn a_forged_sender_of_another_network_is_told_nothing() {
    let mut world = TestLane::with_user();
    let dying = ue4(GNB, USER, 1, 20);
    world.show(N6, &[ethernet(N6, &dying)]);
    assert!(world.left(N3).is_empty() && world.left(N6).is_empty());
    assert_eq!(world.count(DropReason::IcmpSuppressed), 1);
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 1, 20))]);
    assert_eq!((world.left(N6).len(), world.count(DropReason::IcmpSent)), (1, 1));
    world.check();
}

#[test]
fn gates_and_meters_drop_under_their_own_names() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.downlink.common.flags |= flag::CLOSED;
    world.publish(&rules);
    world.show(N6, &[ethernet(N6, &inner())]);
    assert_eq!((world.count(DropReason::GateClosed), world.usage()), (1, [0; 4]));
    let mut rules = simple(3);
    rules.downlink.common.flags |= flag::DROP;
    world.publish(&rules);
    world.show(N6, &[ethernet(N6, &inner())]);
    assert_eq!(world.count(DropReason::ActionDrop), 1);
    world.check();
}

#[test]
fn case_75_between_tunnels_to_the_user_a_new_flow_gets_a_new_container() {
    let mut world = TestLane::with_user();
    let mut rules = between_tunnels();
    world.publish(&rules);
    let message = gtpu(0x30, 255, teid(SESSION), &inner());
    world.show(N3, &[crate::frames::from_gnb(&message)]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!(opened(frame), (GNB_TEID, vec![1, 0, 9, 0], inner()));
    world.check();
    let mut world = TestLane::with_user();
    rules.downlink.common.forwarding.quality = 0;
    world.publish(&rules);
    let relayed = g_pdu(teid(SESSION), 1, 7, &inner());
    world.show(N3, &[crate::frames::from_gnb(&relayed)]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!(opened(frame), (GNB_TEID, vec![1, 0x10, 7, 0], inner()));
    world.check();
}

/// Returns the UDP source ports of frames to the gNB, whose checksums are right.
fn source_ports(frames: &[Vec<u8>]) -> Vec<u16> {
    let port = |frame: &Vec<u8>| {
        let layers = Layers::parse(frame).expect("it parses");
        assert_eq!(verify_transport(frame, &layers), Ok(true));
        layers.ports(frame).expect("UDP").0
    };
    frames.iter().map(port).collect()
}

#[test]
fn the_source_port_is_that_of_the_flow_if_it_is_configured() {
    let mut settings = settings();
    settings["gtp"]["udp-source-port"] = serde_json::json!("flow");
    let mut world = TestLane::new(TestRoutes::new(), settings);
    let mut over6 = simple(2);
    over6.downlink.common.forwarding.what |= forwarding::V6;
    over6.downlink.peer6 = "fd03::9".parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let mut relay = simple(3);
    relay.uplink.common.flags = 0;
    relay.downlink.common.flags = flag::PRESENT | flag::TUNNEL;
    relay.downlink.common.tunnel = teid(SESSION);
    relay.downlink.common.forwarding.quality = 0;
    let flow = |number: u16| {
        let mut packet = inner();
        packet[20..22].copy_from_slice(&number.to_be_bytes());
        packet
    };
    for rules in [simple(1), over6, relay] {
        world.publish(&rules);
        let is_relay = rules.version() == 3;
        let frame = |packet: &Vec<u8>| match is_relay {
            true => crate::frames::from_gnb(&g_pdu(teid(SESSION), 1, 7, packet)),
            false => ethernet(N6, packet),
        };
        let port = if is_relay { N3 } else { N6 };
        let packets: Vec<_> = (0..32).map(flow).collect();
        world.show(port, &packets.iter().map(frame).collect::<Vec<_>>());
        let ports = source_ports(&world.left(N3));
        assert_eq!(ports.len(), 32, "{:?}", world.drop_reasons());
        assert!(ports.iter().all(|port| *port >= 0xc000), "{ports:x?}");
        let different: std::collections::BTreeSet<_> = ports.iter().collect();
        assert!(different.len() > 24, "{ports:x?}");
        // A flow keeps its port.
        world.show(port, &packets.iter().map(frame).collect::<Vec<_>>());
        assert_eq!(source_ports(&world.left(N3)), ports);
    }
    world.check();
    // By default it is the registered one.
    let mut world = TestLane::with_user();
    world.show(N6, &[ethernet(N6, &inner())]);
    assert_eq!(source_ports(&world.left(N3)), [2152]);
    world.check();
}
