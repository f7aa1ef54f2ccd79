//! GTP-U messages without user data.

use upf::rules::layout::drop_reason::DropReason;

use crate::frames::{ethernet, from_gnb, from_gnb6, g_pdu, gtpu, ipv4, udp, ue4};
use crate::test_lane::*;

/// Returns the reply: destination port and message.
fn answer(frame: &[u8]) -> (u16, Vec<u8>) {
    assert_eq!(frame[..12], [NEIGHBOUR_MAC[0], PORT_MAC[0]].concat());
    assert_eq!(frame[26..34], [OUR, GNB].concat());
    assert_eq!(fastlane_wire::checksum::checksum(&frame[14..34]), 0);
    assert_eq!(frame[34..36], 2152_u16.to_be_bytes());
    assert_eq!(frame[38..40], ((frame.len() - 34) as u16).to_be_bytes());
    (u16::from_be_bytes([frame[36], frame[37]]), frame[42..].to_vec())
}

#[test]
fn case_57_echo_is_answered_to_the_port_it_came_from() {
    let mut world = TestLane::with_user();
    let with = from_gnb(&gtpu(0x32, 1, 0, &[0x12, 0x34, 0, 0]));
    let without = from_gnb(&gtpu(0x30, 1, 0, &[]));
    let mut longer = gtpu(0x32, 1, 0, &[0, 9, 0, 0, 255, 0, 3, 0, 9, 1]);
    longer.extend([0; 30]);
    world.show(N3, &[with, without, from_gnb(&longer)]);
    let left: Vec<_> = world.left(N3).iter().map(|frame| answer(frame)).collect();
    let expected = [[0x12, 0x34], [0, 0], [0, 9]]
        .map(|[high, low]| (40000, vec![0x32, 2, 0, 6, 0, 0, 0, 0, high, low, 0, 0, 14, 0]));
    assert_eq!(left, expected);
    assert_eq!(world.count(DropReason::EchoAnswered), 3);
    world.show(N3, &[from_gnb6(&gtpu(0x32, 1, 0, &[0, 1, 0, 0]))]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let layers = fastlane_wire::Layers::parse(frame).expect("it parses");
    assert_eq!(fastlane_wire::checksum::verify_transport(frame, &layers), Ok(true));
    world.check();
}

#[test]
fn case_80_answers_are_limited() {
    let mut settings = settings();
    settings["gtp"] = serde_json::json!({ "quiet-s": 0, "errors-per-s": 10, "echoes-per-s": 20 });
    let mut world = TestLane::new(TestRoutes::new(), settings);
    let echo = from_gnb(&gtpu(0x32, 1, 0, &[0, 0, 0, 0]));
    let unknown = from_gnb(&g_pdu(0x5555, 1, 1, &ue4(USER, SERVER, 64, 4)));
    let started = std::time::Instant::now();
    for _ in 0..10 {
        world.show(N3, &vec![echo.clone(); 20]);
        world.show(N3, &vec![unknown.clone(); 20]);
    }
    let seconds = started.elapsed().as_secs_f64();
    let most = |rate: f64| (rate * seconds + rate / 10.0 + 2.0) as u64;
    let answered = world.count(DropReason::EchoAnswered);
    assert!((2..=most(20.0)).contains(&answered), "{answered} in {seconds} s");
    assert_eq!(answered + world.count(DropReason::EchoSuppressed), 200);
    let told = world.count(DropReason::ErrorIndicationSent);
    assert!((1..=most(10.0)).contains(&told), "{told} in {seconds} s");
    assert_eq!(told + world.count(DropReason::ErrorIndicationSuppressed), 200);
    assert_eq!(world.left(N3).len() as u64, answered + told);
    world.check();
}

#[test]
fn case_58_an_unknown_tunnel_is_told_with_port_tunnel_and_address() {
    let mut world = TestLane::with_user();
    let stale = teid(SESSION) ^ 1 << 31;
    world.show(N3, &[from_gnb(&g_pdu(stale, 1, 1, &ue4(USER, SERVER, 64, 4)))]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let mut expected = vec![0x36, 26, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0x40, 1];
    expected.extend(40000_u16.to_be_bytes());
    expected.extend([0, 16]);
    expected.extend(stale.to_be_bytes());
    expected.extend([133, 0, 4]);
    expected.extend(OUR);
    assert_eq!(answer(frame), (2152, expected));
    assert!(world.linux().is_empty());
    world.check();

    let mut settings = settings();
    settings["gtp"] = serde_json::json!({ "quiet-s": 100 });
    let mut quiet = TestLane::new(TestRoutes::new(), settings);
    quiet.show(N3, &[from_gnb(&g_pdu(stale, 1, 1, &[]))]);
    assert!(quiet.left(N3).is_empty(), "not so soon after the start");
    assert_eq!(quiet.count(DropReason::ErrorIndicationSuppressed), 1);
    quiet.check();
}

#[test]
fn case_59_and_66_what_needs_no_answer_gets_none() {
    let mut world = TestLane::with_user();
    let marker = from_gnb(&gtpu(0x30, 254, 0x5555, &[]));
    let end = from_gnb(&gtpu(0x30, 254, teid(SESSION), &[]));
    let list = from_gnb(&gtpu(0x32, 31, 0, &[0, 0, 0, 0, 141, 1, 0x85]));
    let response = from_gnb(&gtpu(0x32, 2, 0, &[0, 1, 0, 0, 14, 0]));
    world.show(N3, &[marker, end, list, response]);
    assert!(world.left(N3).is_empty() && world.left(N6).is_empty() && world.linux().is_empty());
    let drop_reasons = world.drop_reasons();
    let expected = [
        ("echo_response", 1),
        ("end_marker_received", 1),
        ("gtp_message", 1),
        ("unknown_tunnel", 1),
    ];
    assert_eq!(drop_reasons.into_iter().collect::<Vec<_>>(), expected);
    world.check();
}

#[test]
fn case_62_extension_headers_that_must_be_understood() {
    let mut world = TestLane::with_user();
    let inner = ue4(USER, SERVER, 64, 4);
    let with = |kind: u8| {
        let head = [0, 0, 0, kind, 1, 0, 0, 0];
        from_gnb(&gtpu(0x34, 255, teid(SESSION), &[&head[..], &inner].concat()))
    };
    // Types 11 and 10 are reported, 00 and 01 skipped; PDCP numbers are supported.
    let told = [0xc7, 0x81].map(with);
    let skipped = [0x03, 0x47, 0x20, 0xc0, 0x82].map(with);
    world.show(N3, &told);
    let left = world.left(N3);
    assert_eq!(left.len(), 2, "{:?}", world.drop_reasons());
    for frame in left {
        let list = [0x32, 31, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 141, 4, 0x40, 0x82, 0x85, 0xc0];
        assert_eq!(answer(&frame), (2152, list.to_vec()));
    }
    world.show(N3, &skipped);
    assert_eq!(world.left(N6).len(), 5, "{:?}", world.drop_reasons());
    assert_eq!(world.count(DropReason::GtpExtension), 2);
    world.check();
}

#[test]
fn case_65_an_error_indication_speaks_of_its_sender() {
    let mut world = TestLane::with_user();
    let about = |address: [u8; 4]| {
        let mut elements = vec![16];
        elements.extend(GNB_TEID.to_be_bytes());
        elements.extend([133, 0, 4]);
        elements.extend(address);
        let head = [0, 0, 0, 0x40, 1, 0x9c, 0x40, 0];
        gtpu(0x36, 26, 0, &[&head[..], &elements].concat())
    };
    let cut = gtpu(0x32, 26, 0, &[0, 0, 0, 0, 16, 0, 0]);
    let frames = [about(GNB), about([10, 3, 0, 66]), cut]
        .map(|message| ethernet(N3, &ipv4(GNB, OUR, 17, 64, &udp(2152, 2152, &message))));
    world.show(N3, &frames);
    let drop_reasons: Vec<_> = world.drop_reasons().into_iter().collect();
    let expected =
        [("error_indication_ignored", 1), ("error_indication_received", 1), ("malformed", 1)];
    let mut sorted = drop_reasons.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    world.check();
}
