//! Property tests: each packet has one outcome, and all frames return to the pool.

use fastlane_testing::corpus;
use proptest::prelude::*;

use crate::frames::{ethernet, from_gnb, from_gnb6, g_pdu, gtpu, ipv6, udp, ue4};
use crate::test_lane::*;

fn seeds() -> Vec<Vec<u8>> {
    let up = ue4(USER, SERVER, 64, 20);
    let down = ue4(SERVER, USER, 64, 20);
    let six = ipv6("2001:db8:7::7", &ue6().to_string(), 17, 64, &udp(1, 2, b"six"));
    vec![
        from_gnb(&g_pdu(teid(SESSION), 1, 9, &up)),
        from_gnb6(&g_pdu(teid(SESSION), 1, 9, &up)),
        from_gnb(&gtpu(0x32, 1, 0, &[0, 1, 0, 0])),
        from_gnb(&gtpu(0x36, 26, 0, &[0, 0, 0, 0x40, 1, 0, 0, 0, 16, 0, 0, 9, 0, 133, 0, 4])),
        from_gnb(&gtpu(0x30, 254, teid(SESSION), &[])),
        from_gnb(&g_pdu(teid(SESSION), 1, 9, &ue4(USER, USER, 64, 1400))),
        ethernet(N6, &down),
        ethernet(N6, &six),
        ethernet(N6, &ue4(SERVER, USER, 1, 1600)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_has_one_fate(
        changes in proptest::collection::vec(
            (0_usize..9, 0_u16..2, proptest::collection::vec((0_usize..120, any::<u8>()), 0..4),
             0_usize..200),
            1..40,
        ),
    ) {
        let mut world = TestLane::with_user();
        let seeds = seeds();
        for (seed, port, bytes, length) in changes {
            let mut frame = seeds[seed].clone();
            for (at, value) in bytes {
                // Not the Ethernet addresses, with which it would belong to Linux.
                if let Some(place) = frame.get_mut(12 + at) {
                    *place = value;
                }
            }
            if length < 100 {
                frame.truncate(length.max(14));
            }
            world.show(port, &[frame]);
        }
        world.check();
    }
}

/// Replays the corpus of the fuzzer.
#[test]
fn the_corpus_is_replayed() {
    let own = seeds().into_iter().enumerate();
    let own: Vec<Vec<u8>> = own
        .map(|(number, frame)| crate::fuzz_input::input(u16::from(number > 5), &frame))
        .collect();
    let numbered = own.iter().cloned().enumerate();
    corpus::seeds("upf_packets", numbered.map(|(number, seed)| (format!("seed-{number}"), seed)));
    let mut world = TestLane::with_user();
    corpus::replay("upf_packets", 10, |input| crate::fuzz_input::show(&mut world, input));
    // All frames in one input.
    crate::fuzz_input::show(&mut world, &own.concat());
    world.check();
}
