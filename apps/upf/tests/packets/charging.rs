//! Charging: packets that leave, and nothing else.

use fastlane::mirror::ReversePath;
use fastlane::mirror::{FallbackReason, RouteLookup};
use fastlane_table::EntryId;
use upf::rules::layout::counter_slots::{EVENTS, event};
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::{Rules, flag};

use crate::frames::{ethernet, fill, from_gnb, g_pdu, ue4};
use crate::test_lane::*;

fn up(inner: &[u8]) -> Vec<u8> {
    from_gnb(&g_pdu(teid(SESSION), 1, 9, inner))
}

fn unfragmented(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6] = 0x40;
    fill(&mut packet);
    packet
}

/// Limits the octets of both directions together.
fn limited(version: u64, quota: u64) -> Rules {
    let mut rules = simple(version);
    rules.cold.quota = quota;
    (rules.uplink.check_above, rules.downlink.check_above) = (quota - 1, quota - 1);
    rules
}

fn events(world: &TestLane) -> u64 {
    world.tables.state.read(EntryId(SESSION.0))[EVENTS] & event::ALL
}

/// Creates a lane in which every path fails, with the outcome of packets there.
fn troubled() -> (TestLane, Vec<(u16, Vec<u8>, DropReason)>) {
    let mut known = TestRoutes::new();
    known.reverse_path = ReversePath::Strict;
    known.set("192.0.2.8", RouteLookup::Fallback(FallbackReason::NoNeighbour));
    known.set("192.0.2.9", RouteLookup::Fallback(FallbackReason::Local));
    known.set("192.0.2.10", out_of(N3, 1500)); // into the access network
    known.set("192.0.2.11", RouteLookup::Fallback(FallbackReason::LinkDown));
    let mut congested = up(&ue4(USER, SERVER, 64, 100));
    congested[15] |= 3;
    let checksum =
        fastlane_wire::checksum::checksum(&[&congested[14..24], &congested[26..34]].concat());
    congested[24..26].copy_from_slice(&checksum.to_be_bytes());
    let cases = vec![
        (N3, up(&ue4(USER, [198, 51, 100, 1], 64, 100)), DropReason::NoRoute),
        (N3, up(&ue4(USER, [192, 0, 2, 8], 64, 100)), DropReason::NoNeighbour),
        (N3, up(&ue4(USER, [192, 0, 2, 9], 64, 100)), DropReason::Loop),
        (N3, up(&ue4(USER, [192, 0, 2, 10], 64, 100)), DropReason::NoRoute),
        (N3, up(&ue4(USER, [192, 0, 2, 11], 64, 100)), DropReason::LinkDown),
        (N3, up(&ue4(USER, [10, 45, 7, 7], 64, 100)), DropReason::UnknownUser),
        (N3, up(&unfragmented(ue4(USER, SERVER, 64, 1500))), DropReason::TooLong),
        (N3, up(&ue4(USER, SERVER, 1, 100)), DropReason::TimeToLive),
        (N3, congested, DropReason::Congested),
        (N6, ethernet(N6, &unfragmented(ue4(SERVER, USER, 64, 1450))), DropReason::TooLong),
        (N6, ethernet(N6, &ue4(SERVER, USER, 1, 100)), DropReason::TimeToLive),
    ];
    (TestLane::new(known, settings()), cases)
}

#[test]
fn case_81_what_does_not_leave_is_not_charged() {
    let (mut world, cases) = troubled();
    let mut rules = limited(1, 10_000_000);
    rules.uplink.common.flags |= flag::START;
    world.publish(&rules);
    for (port, frame, cause) in cases {
        let before = world.count(cause);
        world.show(port, &[frame]);
        assert_eq!(world.count(cause), before + 1, "{:?}", world.drop_reasons());
        assert_eq!((world.usage(), events(&world)), ([0; 4], 0), "{cause:?}");
    }
    // The gNB is unreachable, or its address is a local one.
    for (peer, cause) in [([10, 3, 0, 77], DropReason::NoRoute), (OUR, DropReason::Loop)] {
        let mut rules = simple(2);
        rules.downlink.common.forwarding.peer = peer;
        world.publish(&rules);
        let before = world.count(cause);
        world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 100))]);
        assert_eq!((world.count(cause), world.usage()), (before + 1, [0; 4]));
    }
    world.publish(&simple(3));
    let sound = ue4(USER, SERVER, 64, 100);
    world.show(N3, &[up(&sound)]);
    assert_eq!(world.usage(), [sound.len() as u64, 1, 0, 0]);
    world.check();
}

#[test]
fn case_81_a_quota_is_used_up_by_what_leaves_to_the_octet() {
    let (mut world, cases) = troubled();
    let sound = up(&ue4(USER, SERVER, 64, 100));
    let octets = 128;
    world.publish(&limited(1, 5 * octets));
    // In one burst, so that all are classified before the first one leaves.
    let bad = cases.iter().filter(|(port, ..)| *port == N3).map(|(_, frame, _)| frame.clone());
    let burst: Vec<Vec<u8>> = bad.flat_map(|bad| [bad, sound.clone()]).collect();
    world.show(N3, &burst);
    assert_eq!(world.usage(), [5 * octets, 5, 0, 0], "{:?}", world.drop_reasons());
    assert_eq!(world.count(DropReason::ForwardedUplink), 5);
    let late = "the other sound ones, and one whose sender would be told of its length";
    assert_eq!(world.count(DropReason::QuotaExhausted), 5, "{late}");
    assert_eq!(events(&world) & event::QUOTA, event::QUOTA);
    let told: Vec<u32> = world.heard().iter().map(|(kind, _)| *kind).collect();
    let event = upf::rules::layout::message::kind::EVENT;
    assert_eq!(told.iter().filter(|kind| **kind == event).count(), 1, "{told:?}");
    world.check();
}

#[test]
fn a_meter_lets_a_burst_pass_and_charges_no_more_than_that() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.uplink.common.flags |= flag::METER;
    // One octet per ms; the word may be 100 ms ahead.
    (rules.uplink.common.cost, rules.uplink.common.forwarding.shift, rules.uplink.common.burst) =
        (64_000_000, 0, 100);
    world.publish(&rules);
    let sound = up(&ue4(USER, SERVER, 64, 12));
    world.show(N3, &vec![sound; 32]);
    let [octets, packets, ..] = world.usage();
    assert_eq!(octets, packets * 40);
    assert!((3..=4).contains(&packets), "100 ms are 2.5 packets, and one beyond: {packets}");
    assert_eq!(world.count(DropReason::RateExceeded), 32 - packets);
    world.check();
}
