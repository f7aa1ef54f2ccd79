//! Packets between UEs: each UE's lane handles one half, with the port between UEs in the middle.

use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::{Rules, flag};
use upf::session::SessionIndex;

use crate::frames::{fill, from_gnb, g_pdu, opened, ue4};
use crate::test_lane::*;

/// Address, session and TEID of the other UE.
const OTHER: [u8; 4] = [10, 45, 0, 6];
const FAR: SessionIndex = SessionIndex(300);
const FAR_TEID: u32 = 0x77;

/// Publishes rules that forward everything of the other UE.
fn other(version: u64) -> Rules {
    let mut rules = simple(version);
    rules.uplink.ue4 = u32::from_be_bytes(OTHER);
    rules.downlink.common.forwarding.teid = FAR_TEID;
    rules
}

/// Publishes rules that hold packets to the other UE.
fn holding(version: u64) -> Rules {
    let mut rules = other(version);
    rules.downlink.common.flags |= flag::HOLD | flag::NOTIFY;
    (rules.cold.hold_packets, rules.cold.hold_ms) = (4, 60_000);
    rules
}

/// Limits the octets of a direction.
fn limited(mut rules: Rules, quota: u64) -> Rules {
    rules.cold.quota = quota;
    (rules.uplink.check_above, rules.downlink.check_above) = (quota - 1, quota - 1);
    rules
}

fn world() -> TestLane {
    let mut world = TestLane::with_user();
    world.publish_other(FAR, OTHER, &other(1));
    world
}

/// Returns packets with these payloads from one UE to the other, and their form on arrival.
fn offer(world: &mut TestLane, lengths: impl IntoIterator<Item = usize>) -> Vec<Vec<u8>> {
    let packets: Vec<_> = lengths.into_iter().map(|it| ue4(USER, OTHER, 64, it)).collect();
    let frames = packets.iter().map(|it| from_gnb(&g_pdu(teid(SESSION), 1, 1, it)));
    world.show(N3, &frames.collect::<Vec<_>>());
    packets.into_iter().map(arrived).collect()
}

/// Checks that both halves together count as one hop.
fn arrived(mut packet: Vec<u8>) -> Vec<u8> {
    packet[8] -= 1;
    fill(&mut packet);
    packet
}

fn came(world: &mut TestLane) -> Vec<Vec<u8>> {
    let came = world.left(N3);
    let open = came.iter().map(|frame| {
        let (teid, _, inner) = opened(frame);
        assert_eq!(teid, FAR_TEID);
        inner
    });
    open.collect()
}

#[test]
fn case_74_users_reach_each_other_each_charged_for_its_half() {
    let mut world = world();
    let expected = offer(&mut world, [30, 40, 0]);
    let octets: u64 = expected.iter().map(|packet| packet.len() as u64).sum();
    assert_eq!((world.usage(), world.usage_of(FAR)), ([octets, 3, 0, 0], [0; 4]));
    assert_eq!(world.pass(), 3, "{:?}", world.drop_reasons());
    assert_eq!(came(&mut world), expected);
    assert_eq!((world.usage(), world.usage_of(FAR)), ([octets, 3, 0, 0], [0, 0, octets, 3]));
    assert_eq!(world.count(DropReason::UserToUser), 3);
    // Nobody has this address, so nobody is charged.
    let nobody = ue4(USER, [10, 45, 0, 7], 64, 30);
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &nobody))]);
    assert_eq!((world.count(DropReason::UnknownUser), world.usage()[1]), (1, 3));
    assert!(world.pass() == 0 && world.left(N6).is_empty() && world.linux().is_empty());
    world.check();
}

#[test]
fn case_74_users_of_two_lanes_reach_each_other_once() {
    let [mut one, mut two] = [world(), world()];
    let expected = offer(&mut one, [30]);
    let octets = expected[0].len() as u64;
    let between = one.left(HAIRPIN);
    assert_eq!((between.len(), one.left(N3).len()), (1, 0), "{:?}", one.drop_reasons());
    two.show(HAIRPIN, &between);
    assert_eq!(came(&mut two), expected, "{:?}", two.drop_reasons());
    assert_eq!((one.usage(), one.usage_of(FAR)), ([octets, 1, 0, 0], [0; 4]));
    assert_eq!((two.usage(), two.usage_of(FAR)), ([0; 4], [0, 0, octets, 1]));
    assert!(two.left(HAIRPIN).is_empty() && two.left(N6).is_empty());
    // A session deleted meanwhile: the second lane drops the packet.
    two.tables.rules.clear(FAR.0 as usize);
    two.show(HAIRPIN, &between);
    assert_eq!(two.count(DropReason::UnknownUser), 1, "{:?}", two.drop_reasons());
    assert!(two.linux().is_empty() && one.linux().is_empty());
    one.check();
    two.check();
}

/// Checks that a packet which has left the sender's session is measured there (TS 29.244 clause
/// 5.2.2.2), whatever the other UE's rules do.
#[test]
fn the_quota_of_each_ends_its_half() {
    let mut world = world();
    let length = 28 + 30;
    world.publish_other(FAR, OTHER, &limited(other(2), 2 * length));
    let expected = offer(&mut world, [30; 5]);
    assert_eq!(world.pass(), 5);
    assert_eq!(came(&mut world), expected[..2], "{:?}", world.drop_reasons());
    assert_eq!((world.usage()[1], world.usage_of(FAR)[3]), (5, 2));
    assert_eq!(world.count(DropReason::QuotaExhausted), 3);
    // And that of the sender.
    world.publish_other(FAR, OTHER, &other(3));
    world.publish(&limited(simple(2), 7 * length));
    offer(&mut world, [30; 5]);
    assert_eq!((world.pass(), came(&mut world).len()), (2, 2), "{:?}", world.drop_reasons());
    assert_eq!((world.usage()[1], world.usage_of(FAR)[3]), (7, 4));
    assert_eq!(world.count(DropReason::QuotaExhausted), 6);
    world.check();
}

#[test]
fn what_a_user_sends_waits_for_the_other_as_what_the_network_sends() {
    let mut world = world();
    world.publish_other(FAR, OTHER, &holding(2));
    let mut expected = offer(&mut world, 0..6);
    assert_eq!(world.pass(), 6);
    assert!(came(&mut world).is_empty());
    assert_eq!((world.count(DropReason::Held), world.count(DropReason::HoldLimit)), (4, 2));
    assert_eq!((world.usage()[1], world.usage_of(FAR)[3]), (6, 0), "held is not delivered");
    // Later packets stay behind.
    world.publish_other(FAR, OTHER, &other(3));
    expected.truncate(4);
    expected.extend(offer(&mut world, [30]));
    world.pass();
    assert_eq!(came(&mut world), expected, "{:?}", world.drop_reasons());
    assert_eq!((world.usage()[1], world.usage_of(FAR)[3]), (7, 5));
    assert_eq!(world.lane.close(), 0);
}

/// Returns rules that forward a UE's downlink packets to UEs again.
#[test]
fn a_packet_does_not_go_round_among_users() {
    let mut world = world();
    let mut rules = other(2);
    rules.downlink.common.forwarding.what = 1; // to the core
    rules.downlink.common.forwarding.instance = INTERNET;
    world.publish_other(FAR, OTHER, &rules);
    offer(&mut world, [30]);
    assert_eq!(world.pass(), 1);
    assert_eq!((world.pass(), world.count(DropReason::Loop)), (0, 1), "{:?}", world.drop_reasons());
    assert_eq!(world.usage_of(FAR), [0; 4], "it did not pass");
    // From the network, too: through the port between UEs once.
    let frame = crate::frames::ethernet(N6, &ue4(SERVER, OTHER, 64, 30));
    world.show(N6, &[frame]);
    assert_eq!((world.pass(), world.pass(), world.count(DropReason::Loop)), (1, 0, 2));
    world.check();
}

/// The error about a packet that the other UE's tunnel is too short for goes back to the sender.
#[test]
fn a_sender_is_told_the_path_mtu_of_the_other_ue() {
    let mut world = world();
    let mut long = ue4(USER, OTHER, 64, 1460 - 28);
    long[6] = 0x40;
    fill(&mut long);
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &long))]);
    assert_eq!(world.pass(), 1);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let (teid, _, error) = opened(frame);
    assert_eq!((teid, &error[16..20], error[20], error[21]), (GNB_TEID, &USER[..], 3, 4));
    assert_eq!(error[26..28], 1456_u16.to_be_bytes());
    assert_eq!((world.count(DropReason::TooLong), world.count(DropReason::IcmpSent)), (1, 1));
    world.check();
}
