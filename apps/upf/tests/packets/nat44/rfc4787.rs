//! RFC 4787, requirement by requirement: UDP unless said otherwise.

use upf::rules::layout::drop_reason::DropReason;

use super::*;
use crate::frames::fill;

#[test]
fn req_1_a_mapping_does_not_depend_on_the_endpoint() {
    let mut world = NatLane::new();
    for protocol in [UDP, TCP, ICMP] {
        let port = world.map(protocol, 40_000, SERVER);
        assert_eq!(world.map(protocol, 40_000, OTHER_SERVER), port);
        let other = Flow { to: (SERVER, 9999), ..Flow::of_user(protocol, 40_000, SERVER) };
        if protocol != ICMP {
            let left = world.up(&transport(other, 0x10, b"more")).expect("a packet");
            assert_eq!(flow_of(&left).from, (EXTERNAL, port));
        }
        assert!(world.is_in_block(BLOCK, port), "{port}");
    }
    world.lane.check();
}

#[test]
fn req_2_all_mappings_of_a_user_have_one_external_address() {
    let mut world = NatLane::new();
    for port in 1000..1010 {
        // `map` compares the address.
        for protocol in [UDP, TCP, ICMP] {
            world.map(protocol, port, SERVER);
        }
    }
    world.lane.check();
}

#[test]
fn req_3_no_port_is_given_twice() {
    let mut world = NatLane::new();
    let mut taken = std::collections::BTreeSet::new();
    for port in 0..PORTS {
        let protocol = if port % 2 == 0 { UDP } else { TCP };
        assert!(taken.insert(world.map(protocol, 2000 + port * 7, SERVER)));
    }
    let flow = Flow { from: (OTHER, 2000), ..Flow::of_user(UDP, 0, SERVER) };
    let left = world.up_of(OTHER_SESSION, &transport(flow, 0, b"")).pop().expect("a packet");
    let port = flow_of(&left).from.1;
    assert!(!taken.contains(&port) && world.is_in_block(OTHER_BLOCK, port));
    // All ports of the block are in use, each once.
    assert_eq!(world.up(&transport(Flow::of_user(UDP, 1, SERVER), 0, b"")), None);
    assert_eq!(world.lane.count(DropReason::NatPortsExhausted), 1);
    assert_eq!(world.lane.count(DropReason::NatMappingMade), u64::from(PORTS) + 1);
    // RFC 6888, REQ-11: the user is told (host unreachable), and no mapping had to make room.
    let (_, error) = world.received().expect("an ICMP error");
    assert_eq!((error[9], error[20], error[21]), (ICMP, 3, 1));
    assert_eq!(error[28 + 12..28 + 16], USER);
    for port in 0..PORTS {
        let protocol = if port % 2 == 0 { UDP } else { TCP };
        assert!(taken.contains(&world.map(protocol, 2000 + port * 7, SERVER)));
    }
    world.lane.check();
}

#[test]
fn req_4_ports_keep_their_parity() {
    let mut world = NatLane::new();
    for port in 5000..5032 {
        assert_eq!(world.map(UDP, port, SERVER) % 2, port % 2);
    }
    world.lane.check();
}

#[test]
fn req_5_a_mapping_ends_after_its_time_and_not_before() {
    for (protocol, seconds) in [(UDP, 300), (ICMP, 60)] {
        let mut world = NatLane::new();
        let port = world.map(protocol, 4000, SERVER);
        world.age(seconds - 2);
        assert_eq!(world.reaches(protocol, (SERVER, 53), port), Some(4000));
        world.age(6);
        assert_eq!(world.reaches(protocol, (SERVER, 53), port), None);
        assert_eq!(world.lane.count(DropReason::NatNoMapping), 1);
        // The slot is free for another mapping of the user.
        let all: Vec<u16> = (0..PORTS).map(|it| world.map(protocol, 6000 + it, SERVER)).collect();
        assert!(all.contains(&port));
        world.lane.check();
    }
}

#[test]
fn req_5_timers_are_those_of_the_configuration() {
    let mut world = NatLane::with(json!({ "udp-s": 120 }));
    let port = world.map(UDP, 4000, SERVER);
    world.age(118);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), Some(4000));
    world.age(6);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), None);
    world.lane.check();
}

#[test]
fn req_6_packets_of_the_user_prolong_a_mapping_and_no_others_do() {
    let mut world = NatLane::new();
    let port = world.map(UDP, 4000, SERVER);
    for _ in 0..5 {
        world.age(200);
        assert_eq!(world.map(UDP, 4000, OTHER_SERVER), port);
    }
    world.age(200);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), Some(4000));
    world.age(200);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), None, "an answer has prolonged it");
    world.lane.check();
}

#[test]
fn req_8_anybody_may_answer() {
    let mut world = NatLane::new();
    for protocol in [UDP, TCP, ICMP] {
        let port = world.map(protocol, 4000, SERVER);
        for from in [(SERVER, 53), (SERVER, 9), (OTHER_SERVER, 77), ([1, 2, 3, 4], 1)] {
            assert_eq!(world.reaches(protocol, from, port), Some(4000));
        }
    }
    // But only to a port, and by a protocol, that has a mapping.
    let port = world.map(UDP, 4001, SERVER);
    assert_eq!(world.reaches(TCP, (SERVER, 53), port), None);
    let free = (1024 + 64 * 3..).find(|it| world.reaches(UDP, (SERVER, 53), *it).is_none());
    assert!(free.is_some());
    assert!(world.lane.linux().is_empty());
    world.lane.check();
}

#[test]
fn req_9_users_reach_each_other_by_external_addresses() {
    let mut world = NatLane::new();
    let flow = Flow { from: (OTHER, 7000), ..Flow::of_user(UDP, 0, SERVER) };
    let left = world.up_of(OTHER_SESSION, &transport(flow, 0, b"")).pop().expect("a packet");
    let other = flow_of(&left).from;
    let flow = Flow { protocol: UDP, from: (USER, 4000), to: other };
    assert!(world.up(&transport(flow, 0, b"hello")).is_none());
    assert_eq!(world.lane.pass(), 1, "{:?}", world.lane.drop_reasons());
    let (tunnel, inner) = world.received().expect("a packet");
    let got = flow_of(&inner);
    assert_eq!((tunnel, got.to), (OTHER_TEID, (OTHER, 7000)));
    // REQ-9 a: with the external source, to which the other user can answer.
    assert_eq!(got.from.0, EXTERNAL);
    assert!(world.is_in_block(BLOCK, got.from.1));
    assert_eq!(inner[8], 63, "one hop");
    let answer = Flow { protocol: UDP, from: (OTHER, 7000), to: got.from };
    assert!(world.up_of(OTHER_SESSION, &transport(answer, 0, b"hi")).is_empty());
    assert_eq!(world.lane.pass(), 1);
    let (tunnel, inner) = world.received().expect("a packet");
    let got = flow_of(&inner);
    assert_eq!((tunnel, got.from, got.to), (GNB_TEID, other, (USER, 4000)));
    // A port without a mapping is nobody's, also from inside.
    let nobody = Flow { protocol: UDP, from: (USER, 4000), to: (other.0, other.1 ^ 32) };
    world.up(&transport(nobody, 0, b"hello"));
    world.lane.pass();
    assert_eq!((world.received(), world.lane.count(DropReason::NatNoMapping)), (None, 1));
    world.lane.check();
}

#[test]
fn req_10_payload_is_not_changed() {
    let mut world = NatLane::new();
    let text = b"INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP 10.45.0.5:5060\r\n";
    let left = world.up(&transport(Flow::of_user(UDP, 5060, SERVER), 0, text));
    assert_eq!(left.expect("a packet")[28..], *text);
    world.lane.check();
}

#[test]
fn req_11_other_mappings_do_not_change_the_behaviour() {
    let mut world = NatLane::new();
    let port = world.map(UDP, 4000, SERVER);
    (0..200_u16).for_each(|it| {
        world.up(&transport(Flow::of_user(UDP, 8000 + it, SERVER), 0, b""));
    });
    world.received();
    assert_eq!(world.map(UDP, 4000, OTHER_SERVER), port);
    assert_eq!(world.reaches(UDP, ([1, 2, 3, 4], 1), port), Some(4000));
    world.lane.check();
}

#[test]
fn req_12_icmp_does_not_end_a_mapping() {
    let mut world = NatLane::new();
    let sent = transport(Flow::of_user(UDP, 4000, SERVER), 0, b"data");
    let left = world.up(&sent).expect("a packet");
    let port = flow_of(&left).from.1;
    for (kind, code) in [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 13), (11, 0), (12, 0)] {
        // REQ-12 a: whoever sends it.
        let error = icmp_error(kind, code, OTHER_SERVER, EXTERNAL, &left);
        let (_, inner) = world.down(&error).expect("the error");
        assert_eq!((inner[20], inner[21]), (kind, code));
        assert_eq!(world.reaches(UDP, (SERVER, 53), port), Some(4000));
    }
    assert_eq!(world.map(UDP, 4000, SERVER), port);
    world.lane.check();
}

#[test]
fn req_13_a_packet_that_is_too_long_is_answered_or_fragmented() {
    let mut world = NatLane::new();
    let mut routes = TestRoutes::new();
    routes.set("192.0.2.7", out_of(N6, 600));
    let lane = TestLane::new(routes, nat_settings(&json!({})));
    world.lane = lane;
    world.lane.publish(&simple(1));
    world.give(SESSION, USER, BLOCK, 1);
    let mut packet = transport(Flow::of_user(UDP, 4000, SERVER), 0, &[0xab; 1000]);
    packet[6] = 0x40;
    fill(&mut packet);
    assert_eq!(world.up(&packet), None);
    let (_, error) = world.received().expect("an ICMP error");
    assert_eq!((error[20], error[21], &error[26..28]), (3, 4, &600_u16.to_be_bytes()[..]));
    assert_eq!(error[28..28 + 548], packet[..548], "it quotes what the user sent");
    // REQ-13 a: without DF it is fragmented, in order, all of it with the external address.
    packet[6] = 0;
    fill(&mut packet);
    let all = world.up_of(SESSION, &packet);
    assert_eq!(all.len(), 2, "{:?}", world.lane.drop_reasons());
    let whole: Vec<u8> = all.iter().flat_map(|it| it[20..].to_vec()).collect();
    assert_eq!(whole.len(), 1008);
    assert!(all.iter().all(|it| it[12..16] == EXTERNAL && checksum::checksum(&it[..20]) == 0));
    let whole = flow_of(&ipv4(EXTERNAL, SERVER, UDP, 64, &whole));
    assert!(world.is_in_block(BLOCK, whole.from.1));
    world.lane.check();
}

#[test]
fn req_13_a_sender_outside_is_told_about_the_packet_that_it_sent() {
    let mut world = NatLane::new();
    let port = world.map(UDP, 4000, SERVER);
    let flow = Flow { protocol: UDP, from: (SERVER, 53), to: (EXTERNAL, port) };
    let mut packet = transport(flow, 0, &[0xab; 1460]);
    packet[6] = 0x40;
    fill(&mut packet);
    assert_eq!(world.down(&packet), None);
    let error = world.lane.left(N6).pop().expect("an ICMP error")[14..].to_vec();
    assert_eq!((error[16..20].to_vec(), error[20], error[21]), (SERVER.to_vec(), 3, 4));
    assert_eq!(error[28..28 + 548], packet[..548]);
    // The same for a packet whose time is over.
    let mut packet = transport(flow, 0, &[1; 9]);
    packet[8] = 1;
    fill(&mut packet);
    assert_eq!(world.down(&packet), None);
    let error = world.lane.left(N6).pop().expect("an ICMP error")[14..].to_vec();
    assert_eq!((error[20], &error[28..]), (11, &packet[..]));
    world.lane.check();
}

/// Splits a packet into fragments of 8 octets and a rest.
fn fragments(packet: &[u8], each: usize) -> Vec<Vec<u8>> {
    let data = &packet[20..];
    let number = data.len().div_ceil(each);
    let split = data.chunks(each).enumerate().map(|(index, data)| {
        let mut fragment = [&packet[..20], data].concat();
        let more = if index + 1 == number { 0 } else { 0x2000 };
        let flags = more | (index * each / 8) as u16;
        fragment[6..8].copy_from_slice(&flags.to_be_bytes());
        let length = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&length.to_be_bytes());
        fill(&mut fragment);
        fragment
    });
    split.collect()
}

#[test]
fn req_14_fragments_arrive_in_any_order() {
    let mut world = NatLane::new();
    let port = world.map(UDP, 4000, SERVER);
    let flow = Flow { protocol: UDP, from: (SERVER, 53), to: (EXTERNAL, port) };
    let packet = transport(flow, 0, &[0xcd; 999]);
    let all = fragments(&packet, 400);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for (count, index) in order.into_iter().enumerate() {
            let got = world.down(&all[index]);
            if count < 2 {
                assert_eq!(got, None);
                continue;
            }
            let (_, inner) = got.unwrap_or_else(|| panic!("{:?}", world.lane.drop_reasons()));
            assert_eq!(flow_of(&inner).to, (USER, 4000), "{order:?}");
            assert_eq!(inner[28..], packet[28..]);
        }
    }
    assert_eq!(world.lane.count(DropReason::Reassembled), 6);
    // REQ-14 a: fragments without the rest of their packet are given up, and counted.
    for identification in 0..2000_u16 {
        let mut lone = all[1].clone();
        lone[4..6].copy_from_slice(&identification.to_be_bytes());
        fill(&mut lone);
        assert_eq!(world.down(&lone), None);
    }
    assert!(world.lane.count(DropReason::ReassemblyNoRoom) > 1000);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), Some(4000));
    world.lane.check();
}

#[test]
fn req_14_fragments_of_the_user_leave_in_any_order() {
    let mut world = NatLane::new();
    let packet = transport(Flow::of_user(UDP, 4000, SERVER), 0, &[0xcd; 999]);
    let all = fragments(&packet, 400);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut left: Vec<Vec<u8>> =
            order.iter().flat_map(|it| world.up_of(SESSION, &all[*it])).collect();
        assert_eq!(left.len(), 3, "{:?}", world.lane.drop_reasons());
        assert!(left.iter().all(|it| checksum::checksum(&it[..20]) == 0));
        left.sort_by_key(|it| u16::from_be_bytes([it[6], it[7]]) & 0x1fff);
        let whole: Vec<u8> = left.iter().flat_map(|it| it[20..].to_vec()).collect();
        let whole = ipv4(EXTERNAL, SERVER, UDP, 64, &whole);
        assert!(world.is_in_block(BLOCK, flow_of(&whole).from.1));
        assert_eq!(whole[28..], packet[28..]);
    }
    world.lane.check();
}
