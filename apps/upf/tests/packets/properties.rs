//! Whatever comes, each packet has one fate, and all frames come back.

use proptest::prelude::*;

use crate::frames::{ethernet, from_gnb, from_gnb6, g_pdu, gtpu, ipv6, udp, user4};
use crate::support::*;

fn seeds() -> Vec<Vec<u8>> {
    let up = user4(USER, SERVER, 64, 20);
    let down = user4(SERVER, USER, 64, 20);
    let six = ipv6("2001:db8:7::7", &user6().to_string(), 17, 64, &udp(1, 2, b"six"));
    vec![
        from_gnb(&g_pdu(teid(SESSION), 1, 9, &up)),
        from_gnb6(&g_pdu(teid(SESSION), 1, 9, &up)),
        from_gnb(&gtpu(0x32, 1, 0, &[0, 1, 0, 0])),
        from_gnb(&gtpu(0x36, 26, 0, &[0, 0, 0, 0x40, 1, 0, 0, 0, 16, 0, 0, 9, 0, 133, 0, 4])),
        from_gnb(&gtpu(0x30, 254, teid(SESSION), &[])),
        from_gnb(&g_pdu(teid(SESSION), 1, 9, &user4(USER, USER, 64, 1400))),
        ethernet(N6, &down),
        ethernet(N6, &six),
        ethernet(N6, &user4(SERVER, USER, 1, 1600)),
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
        let mut world = World::with_user();
        let seeds = seeds();
        for (seed, port, bytes, length) in changes {
            let mut frame = seeds[seed].clone();
            for (at, value) in bytes {
                // Not the Ethernet addresses: then it would be Linux's.
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

/// What lies in the corpus of the fuzzer goes through as it goes there.
#[test]
fn the_corpus_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/upf_packets");
    let mut inputs: Vec<_> = std::fs::read_dir(folder)
        .expect("there is a corpus")
        .map(|entry| std::fs::read(entry.expect("a file").path()).expect("it can be read"))
        .collect();
    // The seeds are among them, and all in one.
    let own: Vec<Vec<u8>> = seeds()
        .into_iter()
        .enumerate()
        .map(|(number, frame)| crate::fuzz::input(u16::from(number > 5), &frame))
        .collect();
    assert!(own.iter().all(|seed| inputs.contains(seed)), "write them: {}", write(folder, &own));
    inputs.push(own.concat());
    let mut world = World::with_user();
    for input in inputs {
        crate::fuzz::show(&mut world, &input);
    }
    world.check();
}

/// Puts the seeds where they belong, if it is asked for.
fn write(folder: &str, seeds: &[Vec<u8>]) -> &'static str {
    if std::env::var_os("FASTLANE_WRITE_SEEDS").is_none() {
        return "FASTLANE_WRITE_SEEDS=1 cargo test -p upf --test packets";
    }
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(format!("{folder}/seed-{number}"), seed).expect("it can be written");
    }
    "done"
}
