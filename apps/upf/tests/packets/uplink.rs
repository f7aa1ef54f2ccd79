//! Uplink packets.

use fastlane::mirror::ReversePath;
use fastlane::mirror::{FallbackReason, RouteLookup};
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::{flag, forwarding};

use crate::frames::{ethernet, fill, from_gnb, from_gnb6, g_pdu, gtpu, ipv6, udp, ue4};
use crate::test_lane::*;

fn inner() -> Vec<u8> {
    ue4(USER, SERVER, 64, 20)
}

/// Returns the packet as the server receives it: with its TTL decremented.
fn routed(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[8] -= 1;
        fill(&mut packet);
    } else {
        packet[7] -= 1;
    }
    let mut frame = ethernet(N6, &packet);
    frame[..12].copy_from_slice(&[NEIGHBOUR_MAC[1], PORT_MAC[1]].concat());
    frame
}

#[test]
fn case_63_all_flags_and_both_families_are_decapsulated() {
    let mut world = TestLane::with_user();
    let teid = teid(SESSION);
    let mut frames = vec![];
    for flags in 0..8_u8 {
        let mut rest = if flags == 0 { vec![] } else { vec![0x12, 0x34, 0x56, 0] };
        if flags & 4 != 0 {
            rest[3] = 0x85;
            rest.extend([1, 0x10, 9, 0]);
        } else if flags != 0 {
            rest[3] = 0x85; // not evaluated
        }
        rest.extend(inner());
        frames.push(from_gnb(&gtpu(0x30 | flags, 255, teid, &rest)));
    }
    let v6 = ipv6(&ue6().to_string(), "2001:db8:7::7", 17, 64, &udp(1, 2, b"six"));
    frames.push(from_gnb(&g_pdu(teid, 1, 9, &v6)));
    frames.push(from_gnb6(&g_pdu(teid, 1, 9, &inner())));
    world.show(N3, &frames);
    let left = world.left(N6);
    let expected: Vec<_> = (0..8).map(|_| routed(inner())).chain([routed(inner())]).collect();
    // Families are routed one after the other.
    let (four, six): (Vec<_>, Vec<_>) = left.into_iter().partition(|frame| frame[12] == 8);
    assert_eq!(four, expected, "{:?}", world.drop_reasons());
    assert_eq!(six, [routed(v6.clone())]);
    let octets = 9 * inner().len() as u64 + v6.len() as u64;
    assert_eq!(world.usage(), [octets, 10, 0, 0]);
    world.check();
}

#[test]
fn padding_behind_the_inner_packet_is_cut_off_and_not_counted() {
    let mut world = TestLane::with_user();
    let padded = [&inner()[..], &[0xee; 9]].concat();
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &padded))]);
    assert_eq!(world.left(N6), [routed(inner())]);
    assert_eq!(world.usage()[0], inner().len() as u64);
    world.check();
}

#[test]
fn case_60_and_61_what_is_wrong_is_dropped_and_counted() {
    let cause_of = |frame: Vec<u8>| {
        let mut world = TestLane::with_user();
        world.show(N3, &[frame]);
        assert_eq!((world.left(N6).len(), world.left(N3).len(), world.linux().len()), (0, 0, 0));
        let drop_reasons = world.drop_reasons();
        world.check();
        *drop_reasons.keys().next().expect("one")
    };
    let teid = teid(SESSION);
    let good = g_pdu(teid, 1, 1, &inner());
    assert_eq!(cause_of(from_gnb(&gtpu(0x50, 255, teid, &inner()))), "gtp_version");
    assert_eq!(cause_of(from_gnb(&gtpu(0x10, 255, teid, &inner()))), "gtp_version");
    assert_eq!(cause_of(from_gnb(&gtpu(0x20, 255, teid, &inner()))), "gtp_version");
    assert_eq!(cause_of(from_gnb(&gtpu(0x30, 200, teid, &inner()))), "gtp_message");
    assert_eq!(cause_of(from_gnb(&good[..5])), "malformed");
    let mut long = good.clone();
    long[3] += 1;
    assert_eq!(cause_of(from_gnb(&long)), "malformed");
    let mut loops = good.clone();
    loops[12] = 0;
    assert_eq!(cause_of(from_gnb(&loops)), "malformed");
    let mut past = good.clone();
    past[12] = 255;
    assert_eq!(cause_of(from_gnb(&past)), "malformed");
    assert_eq!(cause_of(from_gnb(&g_pdu(teid, 1, 1, &[0x75; 40]))), "malformed");
    assert_eq!(cause_of(from_gnb(&g_pdu(teid, 1, 1, &inner()[..27]))), "malformed");
    // A container of the other direction, on N3.
    assert_eq!(cause_of(from_gnb(&g_pdu(teid, 0, 1, &inner()))), "malformed");
    let mut broken = from_gnb(&good);
    broken[24] ^= 1;
    assert_eq!(cause_of(broken), "malformed");
    let mut broken = from_gnb6(&good);
    *broken.last_mut().expect("not empty") ^= 1;
    assert_eq!(cause_of(broken), "malformed");
    let mut fragment = from_gnb(&good);
    fragment[20] = 0x20;
    fill(&mut fragment[14..34]);
    assert_eq!(cause_of(fragment), "outer_fragment");
}

#[test]
fn udp_over_ipv6_without_a_checksum_is_taken() {
    let mut world = TestLane::with_user();
    let mut frame = from_gnb6(&g_pdu(teid(SESSION), 1, 1, &inner()));
    frame[60..62].fill(0);
    world.show(N3, &[frame]);
    assert_eq!(world.left(N6), [routed(inner())]);
    world.check();
}

#[test]
fn case_68_a_foreign_source_is_dropped() {
    let mut world = TestLane::with_user();
    let foreign = ue4([10, 45, 0, 6], SERVER, 64, 8);
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &foreign))]);
    assert_eq!(world.count(DropReason::ForeignSource), 1);
    assert_eq!((world.left(N6).len(), world.usage()), (0, [0; 4]));
    world.check();
}

#[test]
fn case_64_the_flow_must_be_the_rules_flow() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.uplink.common.flags |= (1 + 9) << flag::QFI;
    world.publish(&rules);
    let frames = [9, 8].map(|qfi| from_gnb(&g_pdu(teid(SESSION), 1, qfi, &inner())));
    world.show(N3, &frames);
    assert_eq!((world.left(N6).len(), world.count(DropReason::NoRule)), (1, 1));
    world.check();
}

#[test]
fn case_71_the_last_hop_is_told_through_the_tunnel_and_not_counted() {
    let mut world = TestLane::with_user();
    let dying = ue4(USER, SERVER, 1, 20);
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &dying))]);
    assert!(world.left(N6).is_empty());
    let [error] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let (teid, container, error) = crate::frames::opened(error);
    assert_eq!((teid, &container[..]), (GNB_TEID, &[1, 0, 9, 0][..]));
    let source = v4([192, 0, 2, 254]).octets();
    assert_eq!(source.map(|it| it.to_string()).join("."), PORT_ADDRESS[1][0], "that of N6");
    assert_eq!((&error[12..16], &error[16..20], error[20]), (&source[..], &USER[..], 11));
    assert_eq!(error[28..], dying);
    assert_eq!(world.usage()[..2], [0, 0], "it did not pass");
    assert_eq!((world.count(DropReason::TimeToLive), world.count(DropReason::IcmpSent)), (1, 1));
    world.check();
}

#[test]
fn case_72_an_intermediate_upf_tells_the_user_that_a_packet_is_too_long_for_the_next_tunnel() {
    let mut known = TestRoutes::new();
    known.set("10.9.0.9", out_of(N3, 1400));
    let mut world = TestLane::new(known, settings());
    let mut rules = simple(2);
    let up = &mut rules.uplink.common.forwarding;
    up.what = forwarding::REMOVE | forwarding::GTPU;
    (up.peer, up.teid, up.instance) = ([10, 9, 0, 9], 0xabcd, forwarding::NO_INSTANCE);
    rules.downlink.common.flags = flag::PRESENT | flag::TUNNEL;
    rules.downlink.common.tunnel = 0x77;
    world.publish(&rules);
    let mut long = ue4(USER, SERVER, 64, 1400);
    long[6] = 0x40;
    fill(&mut long);
    let error = told(&mut world, &long).expect("an error");
    assert_eq!((&error[16..20], error[20], error[21]), (&USER[..], 3, 4));
    // Relayed with its container: IPv4, UDP, GTP-U and 8 octets.
    assert_eq!(error[26..28], (1400_u16 - 20 - 8 - 16).to_be_bytes());
    assert_eq!((world.count(DropReason::TooLong), world.count(DropReason::IcmpSent)), (1, 1));
    world.check();
}

/// Returns the ICMP error that a user gets for a packet to a server.
fn told(world: &mut TestLane, packet: &[u8]) -> Option<Vec<u8>> {
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, packet))]);
    let left = world.left(N3);
    assert!(left.len() <= 1 && world.left(N6).is_empty());
    left.first().map(|frame| crate::frames::opened(frame).2)
}

#[test]
fn sources_of_icmp_errors_are_configured_or_of_n6_and_never_of_n3() {
    let dying = ue4(USER, SERVER, 1, 20);
    let dying6 = ipv6(&ue6().to_string(), "2001:db8:7::7", 17, 1, &udp(1, 2, b"six"));
    // As configured, for the network instance of the packet.
    let mut configured = settings();
    let n6 = &mut configured["interfaces"]["n6"];
    n6["icmp-addresses"] = serde_json::json!(["203.0.113.1", "2001:db8:113::1"]);
    let mut world = TestLane::new(TestRoutes::new(), configured);
    world.publish(&simple(1));
    let error = told(&mut world, &dying).expect("an error");
    assert_eq!(error[12..16], [203, 0, 113, 1]);
    let error = told(&mut world, &dying6).expect("an error");
    let source: std::net::Ipv6Addr = "2001:db8:113::1".parse().expect("an address");
    assert_eq!((error[40], &error[8..24]), (3, &source.octets()[..]));
    world.check();
    // N6 has no address at all: RFC 7600 for IPv4, nothing for IPv6.
    let known = TestRoutes { has_addresses: false, ..TestRoutes::new() };
    let mut world = TestLane::new(known, settings());
    world.publish(&simple(1));
    assert_eq!(told(&mut world, &dying).expect("an error")[12..16], [192, 0, 0, 8]);
    assert_eq!(told(&mut world, &dying6), None);
    assert_eq!((world.count(DropReason::IcmpSent), world.count(DropReason::IcmpNoSource)), (1, 1));
    world.check();
}

#[test]
fn users_are_told_that_no_route_leads_to_a_host() {
    let mut world = TestLane::with_user();
    let packet = ue4(USER, [198, 51, 100, 7], 64, 20);
    let error = told(&mut world, &packet).expect("an error");
    assert_eq!((&error[16..20], error[20], error[21]), (&USER[..], 3, 0));
    assert_eq!(error[28..], packet);
    let packet = ipv6(&ue6().to_string(), "2001:db8:9::9", 17, 64, &udp(1, 2, b"six"));
    let error = told(&mut world, &packet).expect("an error");
    assert_eq!((error[40], error[41], &error[48..]), (1, 0, &packet[..]));
    assert_eq!((world.count(DropReason::NoRoute), world.count(DropReason::IcmpSent)), (2, 2));
    // A blackhole is silent.
    let mut known = TestRoutes::new();
    known.set("198.51.100.7", RouteLookup::Fallback(FallbackReason::Blackhole));
    let mut world = TestLane::new(known, settings());
    world.publish(&simple(1));
    assert_eq!(told(&mut world, &ue4(USER, [198, 51, 100, 7], 64, 20)), None);
    world.check();
}

#[test]
fn case_75_between_tunnels_the_message_stays_as_it_is() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.uplink.common.forwarding.what = forwarding::REMOVE | forwarding::GTPU;
    rules.uplink.common.forwarding.peer = GNB;
    rules.uplink.common.forwarding.teid = 0xabcd;
    rules.uplink.common.forwarding.instance = forwarding::NO_INSTANCE;
    world.publish(&rules);
    let mut message = g_pdu(teid(SESSION), 1, 33, &ue4(USER, SERVER, 1, 20));
    let marker = gtpu(0x30, 254, teid(SESSION), &[]);
    world.show(N3, &[from_gnb(&message), from_gnb(&marker)]);
    message[4..8].copy_from_slice(&0xabcd_u32.to_be_bytes());
    let left = world.left(N3);
    assert_eq!(left.len(), 2, "{:?}", world.drop_reasons());
    crate::frames::opened(&left[0]);
    assert_eq!(left[0][42..], message);
    assert_eq!(left[1][42..], gtpu(0x30, 254, 0xabcd, &[]), "the end marker goes on");
    world.check();
}

#[test]
fn a_neighbour_that_linux_must_find_is_left_to_it_or_asked_for() {
    for (reverse_path, linux) in [(ReversePath::Any, 1), (ReversePath::Strict, 0)] {
        let mut known = TestRoutes::new();
        known.set("192.0.2.7", RouteLookup::Fallback(FallbackReason::NoNeighbour));
        known.reverse_path = reverse_path;
        let mut world = TestLane::new(known, settings());
        world.publish(&simple(1));
        world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &inner()))]);
        let got = world.linux();
        assert_eq!(got.len(), linux);
        for frame in got {
            assert_eq!(frame[..6], PORT_MAC[0]);
            assert_eq!(frame[14..], inner(), "Linux takes the hop");
        }
        let drop_reasons =
            [DropReason::ForwardedByLinux, DropReason::NoNeighbour].map(|cause| world.count(cause));
        assert_eq!(drop_reasons, [linux as u64, 1 - linux as u64]);
        world.check();
    }
}

#[test]
fn linux_gets_no_packet_that_its_rules_would_lead_elsewhere() {
    let mut known = TestRoutes::new();
    known.set("192.0.2.7", RouteLookup::Fallback(FallbackReason::NoNeighbour));
    for (table, linux) in [(254, 1), (100, 0)] {
        let mut settings = settings();
        settings["interfaces"]["n6"]["route-table"] = table.into();
        let mut world = TestLane::new(known.clone(), settings);
        world.publish(&simple(1));
        world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &inner()))]);
        assert_eq!(world.linux().len(), linux, "table {table}");
        assert_eq!(world.count(DropReason::NoNeighbour), 1 - linux as u64);
        world.check();
    }
}

#[test]
fn a_type_of_service_of_the_rules_reaches_linux_and_fragments_too() {
    let mut rules = simple(2);
    (rules.uplink.common.forwarding.marking, rules.uplink.common.forwarding.mask) = (0xb8, 0xfc);
    let mut known = TestRoutes::new();
    known.set("203.0.113.7", RouteLookup::Fallback(FallbackReason::NoNeighbour));
    let mut world = TestLane::new(known, settings());
    world.publish(&rules);
    let to_linux = ue4(USER, [203, 0, 113, 7], 64, 20);
    let long = ue4(USER, SERVER, 64, 2000);
    let frames = [to_linux, long].map(|it| from_gnb(&g_pdu(teid(SESSION), 1, 1, &it)));
    world.show(N3, &frames);
    let services = |frames: Vec<Vec<u8>>| frames.iter().map(|it| it[15]).collect::<Vec<_>>();
    assert_eq!(services(world.linux()), [0xb8]);
    assert_eq!(services(world.left(N6)), [0xb8, 0xb8]);
    world.check();
}

#[test]
fn what_would_leave_by_n3_or_come_back_to_us_is_dropped() {
    let mut known = TestRoutes::new();
    known.set("192.0.2.7", out_of(N3, 1500));
    known.set("10.3.0.1", RouteLookup::Fallback(FallbackReason::Local));
    let mut world = TestLane::new(known, settings());
    world.publish(&simple(1));
    let to_us = ue4(USER, OUR, 64, 8);
    let frames = [inner(), to_us].map(|it| from_gnb(&g_pdu(teid(SESSION), 1, 1, &it)));
    world.show(N3, &frames);
    assert_eq!((world.count(DropReason::NoRoute), world.count(DropReason::Loop)), (1, 1));
    assert!(world.left(N3).is_empty() && world.linux().is_empty());
    world.check();
}

#[test]
fn rfc_6040_congestion_is_told_or_the_packet_dropped() {
    let mut world = TestLane::with_user();
    let mut able = inner();
    able[1] = 1;
    fill(&mut able);
    let frames = [able.clone(), inner()].map(|it| {
        let mut frame = from_gnb(&g_pdu(teid(SESSION), 1, 1, &it));
        frame[15] = 3;
        fill(&mut frame[14..34]);
        frame
    });
    world.show(N3, &frames);
    able[1] = 3;
    fill(&mut able);
    assert_eq!(world.left(N6), [routed(able)]);
    assert_eq!(world.count(DropReason::Congested), 1);
    world.check();
}

#[test]
fn rfc_6040_congestion_is_told_to_the_next_tunnel_of_a_relayed_message() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.uplink.common.forwarding.what = forwarding::REMOVE | forwarding::GTPU;
    rules.uplink.common.forwarding.peer = GNB;
    rules.uplink.common.forwarding.instance = forwarding::NO_INSTANCE;
    world.publish(&rules);
    let mut able = inner();
    able[1] = 1;
    fill(&mut able);
    for (arrived, wanted) in [(1, 1), (3, 3)] {
        let mut frame = from_gnb(&g_pdu(teid(SESSION), 1, 1, &able));
        frame[15] = arrived;
        fill(&mut frame[14..34]);
        world.show(N3, &[frame]);
        let [relayed] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
        assert_eq!(relayed[15] & 3, wanted);
        assert_eq!(relayed[15] & !3, 0);
    }
    world.check();
}
