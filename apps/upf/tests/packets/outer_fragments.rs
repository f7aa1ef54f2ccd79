//! Outer fragments: GTP-U datagrams that arrive in IP fragments.

use std::time::{Duration, Instant};

use fastlane_testing::corpus;
use proptest::prelude::*;
use serde_json::json;
use upf::rules::layout::drop_reason::DropReason;

use crate::frames::{ethernet, fill, from_gnb, from_gnb6, g_pdu, gtpu, ipv4, udp, ue4};
use crate::test_lane::*;

/// Part of a frame's IP payload: its octets and whether more follow.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: usize,
    to: usize,
    more: bool,
}

/// Offset of the payload in a frame.
fn start(frame: &[u8]) -> usize {
    if frame[12] == 8 { 34 } else { 54 }
}

/// Builds the fragment with a part of a frame's IP payload.
fn fragment(frame: &[u8], number: u16, part: Part) -> Vec<u8> {
    let Part { from, to, more } = part;
    let (front, payload) = frame.split_at(start(frame));
    let mut fragment = front.to_vec();
    if frame[12] == 8 {
        let word = (from / 8) as u16 | if more { 0x2000 } else { 0 };
        fragment[18..20].copy_from_slice(&number.to_be_bytes());
        fragment[20..22].copy_from_slice(&word.to_be_bytes());
        fragment[16..18].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        fill(&mut fragment[14..]);
    } else {
        fragment[18..20].copy_from_slice(&((8 + to - from) as u16).to_be_bytes());
        fragment[20] = 44;
        fragment.extend([17, 0]);
        fragment.extend((from as u16 | u16::from(more)).to_be_bytes());
        fragment.extend(u32::from(number).to_be_bytes());
    }
    fragment.extend(&payload[from..to]);
    fragment
}

/// Divides a frame into fragments that end at these multiples of eight octets, and at its end.
fn divided(frame: &[u8], number: u16, ends: &[usize]) -> Vec<Vec<u8>> {
    let length = frame.len() - start(frame);
    let mut from = 0;
    let mut parts = vec![];
    for to in ends.iter().map(|end| end * 8).filter(|end| *end < length).chain([length]) {
        parts.push(Part { from, to, more: to < length });
        from = to;
    }
    parts.into_iter().map(|part| fragment(frame, number, part)).collect()
}

fn inner(data: usize) -> Vec<u8> {
    ue4(USER, SERVER, 64, data)
}

fn uplink(data: usize) -> Vec<u8> {
    from_gnb(&g_pdu(teid(SESSION), 1, 9, &inner(data)))
}

fn uplink6(data: usize) -> Vec<u8> {
    from_gnb6(&g_pdu(teid(SESSION), 1, 9, &inner(data)))
}

/// Returns what leaves of a whole frame.
fn expected(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut world = TestLane::with_user();
    world.show(N3, &[frame.to_vec()]);
    let left = world.left(N6);
    assert_eq!(left.len(), 1, "{:?}", world.drop_reasons());
    left
}

fn counts<const N: usize>(world: &TestLane, reasons: [DropReason; N]) -> [u64; N] {
    reasons.map(|reason| world.count(reason))
}

#[test]
fn case_76_fragments_of_both_families_are_reassembled_in_any_order() {
    for (number, frame) in [uplink(1400), uplink6(1400)].into_iter().enumerate() {
        let parts = divided(&frame, 7, &[64, 128]);
        assert_eq!(parts.len(), 3);
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut world = TestLane::with_user();
            let frames: Vec<_> = order.iter().map(|at| parts[*at].clone()).collect();
            world.show(N3, &frames);
            assert_eq!(world.left(N6), expected(&frame), "{order:?} {:?}", world.drop_reasons());
            let reasons =
                [DropReason::OuterFragment, DropReason::Reassembled, DropReason::ForwardedUplink];
            assert_eq!(counts(&world, reasons), [2, 1, 1], "family {number}");
            assert_eq!(world.usage()[..2], [inner(1400).len() as u64, 1]);
            assert!(world.linux().is_empty());
            world.check();
        }
    }
}

#[test]
fn fragments_of_several_packets_are_kept_apart_and_copies_do_no_harm() {
    let mut world = TestLane::with_user();
    let frames: Vec<_> = (0..20).map(|number| uplink(700 + number)).collect();
    let parts: Vec<_> =
        (0..).zip(&frames).map(|(number, frame)| divided(frame, number, &[40])).collect();
    // All first ones, twice, then all last ones.
    let firsts: Vec<_> = parts.iter().flat_map(|it| [it[0].clone(), it[0].clone()]).collect();
    let lasts: Vec<_> = parts.iter().map(|it| it[1].clone()).collect();
    world.show(N3, &firsts);
    assert!(world.left(N6).is_empty());
    world.show(N3, &lasts);
    let all: Vec<_> = frames.iter().flat_map(|frame| expected(frame)).collect();
    assert_eq!(world.left(N6), all);
    assert_eq!(world.count(DropReason::Reassembled), 20);
    world.check();
}

/// RFC 5722: neither part of the packet is used, nor what comes later of it.
#[test]
fn fragments_that_overlap_end_their_packet() {
    for frame in [uplink(1000), uplink6(1000)] {
        let length = frame.len() - start(&frame);
        let part = |from, to| fragment(&frame, 9, Part { from, to, more: to < length });
        let mut changed = part(320, 640);
        *changed.last_mut().expect("octets") ^= 1;
        for overlap in [part(312, 640), part(328, 640), part(0, 648), changed] {
            let mut world = TestLane::with_user();
            let frames = [part(0, 320), part(320, 640), overlap, part(640, length), part(0, 320)];
            world.show(N3, &frames);
            assert!(world.left(N6).is_empty(), "{:?}", world.drop_reasons());
            let reasons = [
                DropReason::OuterFragment,
                DropReason::OuterFragmentRefused,
                DropReason::ReassemblyRefused,
                DropReason::Reassembled,
            ];
            assert_eq!(counts(&world, reasons), [2, 3, 1, 0]);
            world.check();
        }
    }
}

#[test]
fn malformed_fragments_end_their_packet() {
    let frame = uplink(1000);
    let length = frame.len() - start(&frame);
    let cut = |from, to, more| fragment(&frame, 9, Part { from, to, more });
    let mut far = cut(0, 64, true);
    far[20..22].copy_from_slice(&(0x1fff_u16).to_be_bytes());
    fill(&mut far[14..34]);
    let cases = [
        vec![cut(0, 321, true)], // not a multiple of eight
        vec![cut(0, 320, true), cut(640, 648, false), cut(648, length, false)], // two ends
        vec![cut(640, 960, true), cut(320, 640, false)], // the end before the rest
        vec![far],               // beyond every frame
        vec![cut(0, 0, true)],   // empty
    ];
    for (number, frames) in cases.into_iter().enumerate() {
        let mut world = TestLane::with_user();
        world.show(N3, &frames);
        assert!(world.left(N6).is_empty());
        assert_eq!(world.count(DropReason::OuterFragmentRefused), 1, "case {number}");
        assert_eq!(world.count(DropReason::ReassemblyRefused), 1, "case {number}");
        world.check();
    }
}

#[test]
fn a_packet_that_is_reassembled_is_judged_as_a_whole_one() {
    let mut world = TestLane::with_user();
    let long = vec![0xee; 600];
    // An unknown tunnel, GTP version 2, and an echo request.
    let unknown = from_gnb(&g_pdu(0x7fff_ffff, 1, 9, &inner(900)));
    let version = from_gnb(&gtpu(0x50, 255, teid(SESSION), &long));
    let echo = from_gnb(&gtpu(0x32, 1, 0, &[&[0, 1, 0, 0][..], &long].concat()));
    for (number, frame) in (0..).zip([unknown, version, echo]) {
        world.show(N3, &divided(&frame, number, &[32]));
    }
    let reasons = [DropReason::UnknownTunnel, DropReason::GtpVersion, DropReason::EchoAnswered];
    assert_eq!(counts(&world, reasons), [1, 1, 1], "{:?}", world.drop_reasons());
    assert_eq!(world.count(DropReason::Reassembled), 3);
    // A packet that no frame holds.
    let mut whole = udp(40_000, 2152, &g_pdu(teid(SESSION), 1, 9, &inner(6000)));
    whole.resize(whole.len().next_multiple_of(8), 0);
    let frame = ethernet(N3, &ipv4(GNB, OUR, 17, 64, &whole));
    world.show(N3, &divided(&frame, 9, &[160, 320, 480, 640]));
    assert_eq!(world.count(DropReason::ReassemblyRefused), 1);
    assert!(world.left(N6).is_empty());
    world.check();
}

#[test]
fn congestion_marks_of_fragments_are_those_of_the_packet() {
    let mut world = TestLane::with_user();
    let mut inner = inner(900);
    inner[1] = 2;
    fill(&mut inner);
    let mut frame = from_gnb(&g_pdu(teid(SESSION), 1, 9, &inner));
    frame[15] = 2;
    let mut parts = divided(&frame, 7, &[64]);
    parts[1][15] = 3;
    fill(&mut parts[1][14..34]);
    world.show(N3, &parts);
    let [left] = &world.left(N6)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!(left[15] & 3, 3);
    // A mark beside a part that does not know marks (RFC 3168 clause 5.3).
    frame[15] = 0;
    let mut parts = divided(&frame, 8, &[64]);
    parts[1][15] = 3;
    fill(&mut parts[1][14..34]);
    world.show(N3, &parts);
    assert_eq!((world.left(N6).len(), world.count(DropReason::ReassemblyRefused)), (0, 1));
    world.check();
}

/// PFCP on the address of N3, in fragments: Linux gets each of them.
#[test]
fn fragments_of_what_is_no_gtp_u_are_linuxs() {
    let mut world = TestLane::with_user();
    let pfcp = ethernet(N3, &ipv4(GNB, OUR, 17, 64, &udp(8805, 8805, &[1; 900])));
    let parts = divided(&pfcp, 5, &[40, 80]);
    world.show(N3, &parts);
    assert_eq!(world.linux(), parts);
    // Not for this UPF.
    let other = ethernet(N3, &ipv4(GNB, [10, 3, 0, 77], 17, 64, &udp(1, 2152, &[1; 900])));
    let parts = divided(&other, 5, &[40, 80]);
    world.show(N3, &parts);
    assert_eq!(world.linux(), parts);
    world.check();
}

#[test]
fn incomplete_packets_end_with_their_time_or_for_newer_ones() {
    let mut settings = settings();
    settings["gtp"]["reassembly-ms"] = json!(20);
    settings["limits"]["reassemblies-per-lane"] = json!(4);
    let mut world = TestLane::new(TestRoutes::new(), settings);
    world.publish(&simple(1));
    let frame = uplink(900);
    let firsts: Vec<_> = (0..6).map(|number| divided(&frame, number, &[64])[0].clone()).collect();
    world.show(N3, &firsts);
    assert_eq!(world.count(DropReason::ReassemblyNoRoom), 2);
    // The newest is still there; the oldest is not.
    world.show(N3, &[divided(&frame, 5, &[64])[1].clone()]);
    assert_eq!(world.left(N6), expected(&frame));
    let end = Instant::now() + Duration::from_secs(60);
    while world.count(DropReason::ReassemblyTimeout) < 3 {
        world.lane.turn();
        assert!(Instant::now() < end, "{:?}", world.drop_reasons());
    }
    world.show(N3, &[divided(&frame, 4, &[64])[1].clone()]);
    assert!(world.left(N6).is_empty(), "its first fragment is gone");
    world.check();

    let mut none = crate::test_lane::settings();
    none["limits"]["reassemblies-per-lane"] = json!(0);
    let mut world = TestLane::new(TestRoutes::new(), none);
    world.publish(&simple(1));
    world.show(N3, &divided(&frame, 1, &[64]));
    assert_eq!(world.count(DropReason::OuterFragmentRefused), 2);
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any division, in any order, with copies and with fragments of other packets in between,
    /// gives the packet; with a fragment that overlaps another one by other octets, nothing.
    #[test]
    fn a_packet_is_whole_or_nothing(
        data in 1_usize..1473,
        is_v6 in any::<bool>(),
        ends in proptest::collection::btree_set(1_usize..190, 0..12),
        order in proptest::collection::vec(any::<usize>(), 40),
        forged in proptest::option::of((0_usize..180, 1_usize..20, any::<bool>())),
    ) {
        let frame = if is_v6 { uplink6(data) } else { uplink(data) };
        let length = frame.len() - start(&frame);
        let ends: Vec<usize> = ends.into_iter().collect();
        let mut parts = divided(&frame, 7, &ends);
        prop_assume!(parts.len() > 1);
        // Copies, and another packet's fragments of the same octets.
        for at in order.iter().take(3) {
            parts.push(parts[at % parts.len()].clone());
        }
        parts.extend(divided(&frame, 8, &ends));
        let mut is_forged = false;
        if let Some((from, blocks, more)) = forged {
            let (from, to) = (from * 8, (from + blocks) * 8);
            // A forger who knows where parts begin and end can be the first.
            let is_end = |at: usize| at == 0 || ends.iter().any(|end| end * 8 == at);
            if to < length && !(is_end(from) && is_end(to)) {
                let mut part = fragment(&frame, 7, Part { from, to, more });
                *part.last_mut().expect("octets") ^= 0x55;
                parts.push(part);
                is_forged = true;
            }
        }
        for (at, with) in order.iter().enumerate() {
            if at < parts.len() {
                let with = with % parts.len();
                parts.swap(at, with);
            }
        }
        let mut world = TestLane::with_user();
        world.show(N3, &parts);
        let (left, wanted) = (world.left(N6), expected(&frame));
        prop_assert!(left.iter().all(|packet| *packet == wanted[0]), "{:?}", world.drop_reasons());
        if !is_forged {
            // Three copies may be the packet once more.
            let is_right = (2..=3).contains(&left.len());
            prop_assert!(is_right, "{} {:?}", left.len(), world.drop_reasons());
        }
        world.check();
    }
}

/// Replays the corpus of the fuzzer.
#[test]
fn the_corpus_of_fragments_is_replayed() {
    let inputs = [uplink(900), uplink6(900), uplink(1400)].into_iter().enumerate();
    let seeds = inputs.flat_map(|(number, frame)| {
        let parts = divided(&frame, 7, &[40, 80]);
        let length = frame.len() - start(&frame);
        let overlap = fragment(&frame, 7, Part { from: 312, to: length, more: false });
        let input = |frames: &[Vec<u8>]| -> Vec<u8> {
            frames.iter().flat_map(|frame| crate::fuzz_input::input(N3, frame)).collect()
        };
        let mut backwards = parts.clone();
        backwards.reverse();
        let with_overlap = vec![parts[0].clone(), parts[1].clone(), overlap];
        [
            (format!("parts-{number}"), input(&parts)),
            (format!("backwards-{number}"), input(&backwards)),
            (format!("overlap-{number}"), input(&with_overlap)),
        ]
    });
    corpus::seeds("upf_fragments", seeds);
    let mut world = TestLane::with_user();
    corpus::replay("upf_fragments", 9, |input| {
        crate::fuzz_input::show_fragments(&mut world, input);
    });
    world.check();
}
