//! Arbitrary messages through the model to the tables: lookups must agree with the model.

use fastlane_mirror::fuzz;
use fastlane_table::Guard;
use fastlane_testing::{corpus, sleeping_lane};
use proptest::prelude::*;

fn seeds() -> Vec<Vec<u8>> {
    let mut inputs = corpus::inputs("netlink");
    // A default route of IPv4 is sixteen million words, which takes its time without optimisation.
    inputs.retain(|(name, _)| name != "route-via-inet6");
    let padded = |(_, mut octets): (String, Vec<u8>)| {
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    };
    inputs.into_iter().map(padded).collect()
}

#[test]
fn the_seeds_make_routes() {
    let data = |mut seed: Vec<u8>| {
        seed.resize(256, 0);
        seed
    };
    let is_change = |seed: &Vec<u8>| {
        let kind = u16::from_ne_bytes([seed[4], seed[5]]);
        let to_linux = [libc::RTM_NEWRULE, libc::RTM_NEWQDISC, libc::RTM_NEWTFILTER];
        kind != libc::RTM_DELLINK && !to_linux.contains(&kind)
    };
    let data: Vec<u8> = seeds().into_iter().filter(is_change).flat_map(data).collect();
    // SAFETY: as below.
    assert!(fuzz::tables(&data, &unsafe { Guard::new() }, &sleeping_lane()) > 10);
}

/// A route that is dead before its interface is known.
#[test]
fn a_dead_hop_stays_dead_when_its_interface_comes() {
    let seed = |wanted: &str| {
        let (_, mut seed) =
            corpus::inputs("netlink").into_iter().find(|(name, _)| name == wanted).unwrap();
        seed.resize(256, 0);
        seed
    };
    let mut route = seed("route-main");
    route[24] |= 1; // RTNH_F_DEAD of `rtm_flags`
    let data = [route, seed("neighbour"), seed("link")].concat();
    // SAFETY: as below.
    assert_eq!(fuzz::tables(&data, &unsafe { Guard::new() }, &sleeping_lane()), 0);
}

fn cases() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 1000 } else { 16 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn tables_say_what_the_model_says(
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 3]>()), 1..80),
    ) {
        let seeds = seeds();
        let mut data = Vec::new();
        for (which, [place, octet, change]) in order {
            let mut octets = which.get(&seeds).clone();
            if change & 1 == 1 {
                let place = 16 + usize::from(place) % (octets.len() - 15).max(1);
                if let Some(there) = octets.get_mut(place) {
                    *there = octet;
                }
            }
            data.extend(octets);
            data.resize(data.len().next_multiple_of(256), 0);
        }
        // SAFETY: the writer is in this thread and does not write while a lookup lasts.
        fuzz::tables(&data, &unsafe { Guard::new() }, &sleeping_lane());
    }
}
