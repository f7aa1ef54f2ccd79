//! Tests of forwarding without Linux.

mod golden;
mod support;

use fastlane::mirror::ReversePath;
use fastlane::mirror::{FallbackReason, RouteLookup};
use fastlane_table::{ClassifierReader, ClassifierWriter, Spec};
use fastlane_testing::sleeping_lane;
use fastlane_wire::checksum::checksum;
use proptest::prelude::*;
use router::acl::compiled::{AccessList, Decision};
use router::acl::text;
use router::{Outcome, Router};
use support::{EXIT, LINKS, NEXT, STATION, TestRoutes, name, out_of, route, state};

/// Builds UDP from 10.0.0.1:4000 to port 53 of `to` in a frame of at least 60 bytes.
fn four(to: [u8; 4], time_to_live: u8, payload: usize) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, time_to_live, 17, 0, 0, 10, 0, 0, 1];
    ip.extend(to);
    ip[2..4].copy_from_slice(&(28 + payload as u16).to_be_bytes());
    fill(&mut ip);
    let mut frame = [STATION, [2, 0, 0, 0, 0, 2]].concat();
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend([0x0f, 0xa0, 0, 53, 0, 8 + payload as u8, 0, 0]);
    frame.resize(14 + 28 + payload, 0xab);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn fill(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let sum = checksum(&ip[..20]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Builds UDP to 2001:db8::2.
fn six(hop_limit: u8, payload: usize) -> Vec<u8> {
    let mut frame = [STATION, [2, 0, 0, 0, 0, 2]].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8 + payload as u8, 17, hop_limit]);
    for last in [1, 2] {
        frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend([0x0f, 0xa0, 0, 53, 0, 8 + payload as u8, 0, 0]);
    frame.resize(frame.len() + payload, 0xab);
    frame
}

const TO: [u8; 4] = [192, 0, 2, 1];

fn known() -> TestRoutes {
    let mut known = TestRoutes::new();
    known.set("192.0.2.1", out_of(1, 1500));
    known.set("2001:db8::2", out_of(1, 1500));
    known
}

/// Returns the outcome of one frame. Checks that Linux gets its frames unchanged.
fn outcome_of(known: TestRoutes, frame: &[u8]) -> String {
    let results = route(known, &[frame.to_vec()], |router| router);
    let [cause] = &results.causes.keys().collect::<Vec<_>>()[..] else { panic!("{results:?}") };
    if cause.starts_with("linux_") {
        assert_eq!(results.linux, [frame], "Linux gets it as it came");
    }
    (*cause).clone()
}

#[test]
fn what_is_forwarded_has_new_addresses_and_a_hop_less() {
    let frames = [four(TO, 64, 4), six(64, 4), four(TO, 2, 100)];
    let results = route(known(), &frames, |router| router);
    assert_eq!(results.sent[0], Vec::<Vec<u8>>::new());
    // The families are looked up one after the other; each keeps its place in the burst.
    for (was, is) in frames.iter().zip(&results.sent[1]) {
        assert_eq!(is[..12], [NEXT, EXIT].concat());
        assert_eq!(is[12..14], was[12..14]);
        let mut expected = was[14..].to_vec();
        if was[12] == 8 {
            expected[8] -= 1;
            fill(&mut expected);
        } else {
            expected[7] -= 1;
        }
        assert_eq!(is[14..], expected);
    }
    assert_eq!(results.sent[1].len(), 3);
    assert_eq!(results.causes["forwarded"], 3);
    let octets = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!(results.routes[&41][..2], [3, octets]);
    let last = u128::from(results.routes[&41][2]) << 64 | u128::from(results.routes[&41][3]);
    assert!(last as u32 == u32::from_be_bytes(TO) || last as u16 == 2, "{last:x}");
}

#[test]
fn what_stands_behind_a_packet_is_cut_off() {
    let mut long = four(TO, 64, 100);
    let length = long.len();
    long.extend([0xee; 30]);
    let short = four(TO, 64, 0); // with padding
    let results = route(known(), &[long, short], |router| router);
    let lengths: Vec<usize> = results.sent[1].iter().map(Vec::len).collect();
    assert_eq!(lengths, [length, 60]);
}

#[test]
fn what_is_not_simple_is_linuxs_as_it_came() {
    let cause = |cause| name(cause);
    assert_eq!(outcome_of(known(), &four(TO, 64, 4)), "forwarded");
    assert_eq!(outcome_of(known(), &four(TO, 1, 4)), cause(Outcome::TimeToLive));
    assert_eq!(outcome_of(known(), &six(1, 4)), cause(Outcome::TimeToLive));
    assert_eq!(outcome_of(known(), &four([9, 9, 9, 9], 64, 4)), "linux_no_route");
    for reason in FallbackReason::ALL {
        let mut known = known();
        known.set("192.0.2.1", RouteLookup::Fallback(reason));
        assert_eq!(outcome_of(known, &four(TO, 64, 4)), format!("linux_{}", reason.name()));
    }
    let mut small = known();
    small.set("192.0.2.1", out_of(1, 128));
    small.set("2001:db8::2", out_of(1, 128));
    assert_eq!(outcome_of(small.clone(), &four(TO, 64, 100)), "forwarded");
    assert_eq!(outcome_of(small.clone(), &four(TO, 64, 101)), cause(Outcome::TooLong));
    assert_eq!(outcome_of(small.clone(), &six(64, 80)), "forwarded");
    assert_eq!(outcome_of(small, &six(64, 81)), cause(Outcome::TooLong));
    let mut closed = known();
    closed.entrance.forwards4 = false;
    assert_eq!(outcome_of(closed.clone(), &four(TO, 64, 4)), cause(Outcome::ForwardingOff));
    assert_eq!(outcome_of(closed.clone(), &six(64, 4)), "forwarded");
    closed.entrance.forwards6 = false;
    assert_eq!(outcome_of(closed, &six(64, 4)), cause(Outcome::ForwardingOff));
    // Time to live, but also for the router itself: that counts.
    let mut local = known();
    local.set("192.0.2.1", RouteLookup::Fallback(FallbackReason::Local));
    assert_eq!(outcome_of(local, &four(TO, 1, 4)), "linux_local");
}

#[test]
fn the_same_interface_is_left_to_linux_unless_told_otherwise() {
    let mut back = known();
    back.set("192.0.2.1", out_of(0, 1500));
    assert_eq!(outcome_of(back.clone(), &four(TO, 64, 4)), name(Outcome::SameInterface));
    let results = route(back, &[four(TO, 64, 4)], |router| router.with_same_interface(true));
    assert_eq!((results.sent[0].len(), results.linux.len()), (1, 0));
}

#[test]
fn sources_are_believed_as_linux_says() {
    let source = "10.0.0.1";
    let with = |reverse_path, back: Option<RouteLookup>| {
        let mut known = known();
        known.entrance.reverse_path = reverse_path;
        if let Some(back) = back {
            known.set(source, back);
        }
        outcome_of(known, &four(TO, 64, 4))
    };
    let not = name(Outcome::ReversePath);
    let (same, other) = (out_of(0, 1500), out_of(1, 1500));
    assert_eq!(with(ReversePath::Any, None), "forwarded");
    assert_eq!(with(ReversePath::Strict, Some(same)), "forwarded");
    assert_eq!(with(ReversePath::Strict, Some(other)), not);
    assert_eq!(with(ReversePath::Strict, None), not);
    assert_eq!(with(ReversePath::Loose, Some(other)), "forwarded");
    // Linux must send what leaves for the source, but this packet arrived where it would leave.
    let linux_sends = |reverse_path, link, reason| {
        let mut known = known();
        known.entrance.reverse_path = reverse_path;
        known.set_return(source, link, reason);
        outcome_of(known, &four(TO, 64, 4))
    };
    for reason in [FallbackReason::NoNeighbour, FallbackReason::TrafficControl] {
        assert_eq!(linux_sends(ReversePath::Loose, LINKS[1], reason), "forwarded");
        assert_eq!(linux_sends(ReversePath::Strict, LINKS[0], reason), "forwarded");
        assert_eq!(linux_sends(ReversePath::Strict, LINKS[1], reason), not);
    }
    for reverse_path in [ReversePath::Loose, ReversePath::Strict] {
        assert_eq!(linux_sends(reverse_path, LINKS[0], FallbackReason::LinkDown), not);
    }
    for reason in [
        FallbackReason::NoRoute,
        FallbackReason::Blackhole,
        FallbackReason::Incomplete,
        FallbackReason::Multicast,
    ] {
        assert_eq!(with(ReversePath::Loose, Some(RouteLookup::Fallback(reason))), not);
        assert_eq!(with(ReversePath::Strict, Some(RouteLookup::Fallback(reason))), not);
    }
    for reverse_path in [ReversePath::Loose, ReversePath::Strict] {
        let own = with(reverse_path, Some(RouteLookup::Fallback(FallbackReason::Local)));
        assert_eq!(own, name(Outcome::OwnSource));
    }
    let mut own = known();
    own.own.push(source.parse().unwrap());
    assert_eq!(outcome_of(own, &four(TO, 64, 4)), name(Outcome::OwnSource));
}

#[test]
fn an_interface_that_is_not_known_has_nothing_forwarded() {
    let mut other = known();
    other.entrance.mac = [2, 9, 9, 9, 9, 9];
    assert_eq!(outcome_of(other, &four(TO, 64, 4)), name(Outcome::OtherStation));
}

fn with_list(rules: &str) -> impl FnOnce(Router<TestRoutes>) -> Router<TestRoutes> {
    let memory = Spec::classifier::<Decision>("acl", 64).create().unwrap();
    let mut writer = ClassifierWriter::attach(&memory, &sleeping_lane()).unwrap();
    text::rule_set(rules).unwrap().compile(1, |list| writer.replace(list)).unwrap();
    let reader = ClassifierReader::attach(&memory).unwrap();
    let list = AccessList::new(reader, state("acl", 64).lane(0));
    move |router| router.with_access_list(list)
}

#[test]
fn a_list_is_asked_of_all_that_is_not_for_the_router_itself() {
    let mut known = known();
    known.set("192.0.2.2", RouteLookup::Fallback(FallbackReason::NoNeighbour));
    known.set("192.0.2.3", RouteLookup::Fallback(FallbackReason::Local));
    let frames = [
        four(TO, 64, 4),
        four([192, 0, 2, 2], 64, 4),
        four(TO, 1, 4),
        four([192, 0, 2, 3], 64, 4),
        six(64, 4),
    ];
    let results = route(known, &frames, with_list("10 drop ipv4 udp to any port 53"));
    assert_eq!(results.causes[&name(Outcome::AclDrop)], 3, "{results:?}");
    assert_eq!((results.linux.len(), results.sent[1].len()), (1, 1));
    // A fragment does not say whether it is one of those.
    let mut fragment = four(TO, 64, 4);
    fragment[20] = 0x20;
    fill(&mut fragment[14..]);
    let results = route(self::known(), &[fragment], with_list("10 drop udp to any port 53"));
    assert_eq!(results.causes[&name(Outcome::AclNoPorts)], 1, "{results:?}");
    // A packet without a payload, which Linux would forward.
    let mut empty = six(64, 4);
    (empty[19], empty[20]) = (0, 59);
    let results = route(self::known(), &[empty], with_list("10 drop from 2001:db8::/32"));
    assert_eq!(results.causes[&name(Outcome::AclDrop)], 1, "{results:?}");
}

#[test]
fn extension_headers_do_not_lead_around_a_list() {
    // Destination options between the IPv6 and the UDP header, and a Hop-by-Hop header.
    let behind = |header: u8, next: u8| {
        let mut frame = six(64, 12);
        let udp = frame.split_off(54);
        frame[20] = header;
        frame[19] += 8;
        frame.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend(udp);
        frame
    };
    let cause = |frame: Vec<u8>, rules: &str| {
        let results = route(self::known(), &[frame], with_list(rules));
        let dropped = [Outcome::AclDrop, Outcome::AclNoPorts];
        dropped.into_iter().find(|it| results.causes.contains_key(&name(*it)))
    };
    for header in [60, 0] {
        let of = |rules| cause(behind(header, 17), rules);
        assert_eq!(of("10 drop udp"), Some(Outcome::AclDrop), "{header}");
        assert_eq!(of("10 drop udp to any port 53"), Some(Outcome::AclNoPorts), "{header}");
        assert_eq!(of("10 drop tcp"), None, "{header}");
        assert_eq!(of("default drop\n10 permit udp"), None, "{header}");
        // Options whose end is not in the packet.
        let mut cut = behind(header, 60);
        cut[55] = 200;
        assert_eq!(cause(cut, "10 drop tcp"), Some(Outcome::AclNoPorts), "{header}");
    }
    // Without a payload length: Linux takes that of the frame.
    let mut endless = behind(0, 17);
    endless[18..20].fill(0);
    assert_eq!(cause(endless.clone(), "10 drop udp"), Some(Outcome::AclNoPorts));
    assert_eq!(outcome_of(known(), &endless), name(Outcome::Malformed));
}

#[test]
fn priority_tags_do_not_lead_around_a_list() {
    let tagged = |frame: Vec<u8>, tags: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
    let cause = |frame: Vec<u8>, rules: &str| {
        let results = route(known(), &[frame], with_list(rules));
        let [cause] = &results.causes.keys().collect::<Vec<_>>()[..] else { panic!("{results:?}") };
        (*cause).clone()
    };
    for tag in [[0x81, 0, 0xe0, 0], [0x88, 0xa8, 0, 0]] {
        for frame in [four(TO, 64, 4), six(64, 4)] {
            let frame = tagged(frame, &tag);
            assert_eq!(cause(frame.clone(), "10 drop udp"), name(Outcome::AclDrop));
            // What the list permits is Linux's, as it is without a list.
            assert_eq!(cause(frame.clone(), "10 drop tcp"), name(Outcome::EtherType));
            assert_eq!(outcome_of(known(), &frame), name(Outcome::EtherType));
            // Linux would look behind a second tag, too.
            let twice = tagged(frame, &tag);
            assert_eq!(cause(twice.clone(), "10 drop tcp"), name(Outcome::AclNoPorts));
            assert_eq!(outcome_of(known(), &twice), name(Outcome::EtherType));
        }
    }
    // Other VLANs have interfaces of their own, and neighbours are found by ARP.
    let vlan = tagged(four(TO, 64, 4), &[0x81, 0, 0, 7]);
    assert_eq!(cause(vlan, "default drop"), name(Outcome::EtherType));
    let mut arp = tagged(four(TO, 64, 4), &[0x81, 0, 0, 0]);
    arp[16..18].copy_from_slice(&[8, 6]);
    assert_eq!(cause(arp, "default drop"), name(Outcome::EtherType));
}

#[test]
fn a_list_does_not_keep_neighbours_from_each_other() {
    let mut known = known();
    known.set("fe80::1", RouteLookup::Fallback(FallbackReason::Martian));
    let mut advertisement = six(255, 24);
    advertisement[20] = 58;
    let to: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
    advertisement[38..54].copy_from_slice(&to.octets());
    let results = route(known, &[advertisement], with_list("default drop"));
    assert_eq!(results.linux.len(), 1, "{results:?}");
}

proptest! {
    /// Compares the incremental checksum with a full computation (RFC 1624).
    #[test]
    fn the_checksum_is_right_whatever_the_header(
        header in proptest::array::uniform20(any::<u8>()),
        time_to_live in 2_u8..,
    ) {
        let mut frame = four(TO, 64, 26);
        let ip = &mut frame[14..34];
        let (length, to) = ([ip[2], ip[3]], TO);
        ip.copy_from_slice(&header);
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&length);
        ip[8] = time_to_live;
        ip[12] = 10;
        ip[16..].copy_from_slice(&to);
        fill(ip);
        let results = route(known(), std::slice::from_ref(&frame), |router| router);
        let mut expected = frame[14..34].to_vec();
        expected[8] -= 1;
        fill(&mut expected);
        prop_assert_eq!(&results.sent[1][0][14..34], &expected[..]);
    }
}
