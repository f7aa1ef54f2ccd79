//! Interfaces with a configured next hop: Linux routes are not used.

use serde_json::json;
use upf::rules::layout::drop_reason::DropReason;

use crate::frames::{ethernet, from_gnb, g_pdu, ipv6, opened, udp, ue4};
use crate::test_lane::*;

const HOP: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Creates a lane without routes, with the next hop on N3 and N6.
fn world() -> TestLane {
    let mut settings = settings();
    for name in ["n3", "n6"] {
        settings["interfaces"][name]["next-hop"] = json!("02:00:00:00:00:02");
    }
    let known = TestRoutes { answers: Default::default(), ..TestRoutes::new() };
    let mut world = TestLane::new(known, settings);
    world.publish(&simple(1));
    world
}

#[test]
fn packets_go_both_ways_without_a_route() {
    let mut world = world();
    let v6 = ipv6(&ue6().to_string(), "2001:db8:7::7", 17, 64, &udp(1, 2, b"six"));
    let up = [ue4(USER, SERVER, 64, 20), v6];
    world.show(N3, &up.map(|inner| from_gnb(&g_pdu(teid(SESSION), 1, 9, &inner))));
    let left = world.left(N6);
    assert_eq!(left.len(), 2, "{:?}", world.drop_reasons());
    assert!(left.iter().all(|frame| frame[..6] == HOP && frame[6..12] == [2, 0, 0, 0, 0, 1]));
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 20))]);
    let [frame] = &mut world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!(frame[..6], HOP);
    frame[..12].copy_from_slice(&[NEIGHBOUR_MAC[0], PORT_MAC[0]].concat());
    assert_eq!(opened(frame).0, GNB_TEID);
    world.check();
}

#[test]
fn users_reach_each_other_and_our_tunnels_stay_ours() {
    let mut world = world();
    let mut packets = vec![ue4(USER, USER, 64, 30), ue4(USER, OUR, 64, 8)];
    packets.push(ue4(USER, SERVER, 64, 1600)); // longer than the link to the next hop
    let frames = packets.iter().map(|it| from_gnb(&g_pdu(teid(SESSION), 1, 1, it)));
    world.show(N3, &frames.collect::<Vec<_>>());
    assert_eq!(
        (world.count(DropReason::UserToUser), world.pass()),
        (1, 1),
        "{:?}",
        world.drop_reasons()
    );
    let left = world.left(N6);
    assert!(left.iter().all(|frame| frame.len() <= 1514), "{left:?}");
    world.check();
}
