mod ue_address;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::session::Session;
use crate::store::{Memory, typical};

fn end(store: &mut Store, places: &mut SessionIndices, id: SessionIndex, at: u64) {
    let gone = Session { id, is_deleted: true, version: store.next_version(), ..typical(id.0) };
    store.commit(&gone, None, at).unwrap();
    places.give_back(id);
}

fn begin(store: &mut Store, id: SessionIndex) {
    let session = Session { id, version: store.next_version(), ..typical(id.0) };
    store.commit(&session, None, 0).unwrap();
}

#[test]
fn sessions_are_spread_over_shards() {
    let memory = Memory::of(1024, 16, 16);
    let store = memory.open();
    let mut places = SessionIndices::open(&store, u32::MAX);
    let taken: BTreeSet<u32> = (0..512).map(|_| places.take(&store, 1).unwrap().0).collect();
    assert_eq!((taken.len(), places.live()), (512, 512));
    assert!(places.by_shard().all(|live| live == 2));
}

#[test]
fn a_place_is_used_again_when_it_has_been_free_long_enough_and_after_those_free_longer() {
    let memory = Memory::of(512, 16, 16);
    let mut store = memory.open();
    let mut places = SessionIndices::open(&store, u32::MAX);
    for _ in 0..512 {
        let id = places.take(&store, 1).unwrap();
        begin(&mut store, id);
    }
    assert_eq!(places.take(&store, u64::MAX), None);
    end(&mut store, &mut places, SessionIndex(7), 100);
    end(&mut store, &mut places, SessionIndex(263), 200);
    assert_eq!(places.take(&store, 100), None);
    // A successor process rebuilds the same order.
    for mut places in [SessionIndices::open(&memory.open(), u32::MAX), places] {
        assert_eq!(places.take(&store, 101), Some(SessionIndex(7)));
        assert_eq!(places.take(&store, 150), None);
        assert_eq!(places.take(&store, 201), Some(SessionIndex(263)));
        places.untake(SessionIndex(263));
        assert_eq!(places.live(), 511);
        assert_eq!(places.take(&store, 201), Some(SessionIndex(263)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn no_place_is_given_out_twice(steps in prop::collection::vec(any::<(bool, u8)>(), 1..200)) {
        let memory = Memory::of(300, 16, 16);
        let mut store = memory.open();
        let mut places = SessionIndices::open(&store, u32::MAX);
        let mut live = Vec::new();
        for (now, (ends, which)) in steps.into_iter().enumerate() {
            if ends && !live.is_empty() {
                let id = live.swap_remove(usize::from(which) % live.len());
                end(&mut store, &mut places, id, now as u64);
            } else if let Some(id) = places.take(&store, u64::MAX) {
                prop_assert!(!live.contains(&id));
                begin(&mut store, id);
                live.push(id);
            }
            prop_assert_eq!(places.live() as usize, live.len());
        }
        let reopened = SessionIndices::open(&memory.open(), u32::MAX);
        prop_assert_eq!(reopened.live() as usize, live.len());
        prop_assert!(reopened.by_shard().eq(places.by_shard()));
    }
}

#[test]
fn all_identifiers_of_a_place_come_before_one_comes_again() {
    let (shape, id) = (TeidLayout::of(1 << 20), SessionIndex(0xF_FFFF));
    let mut generation = u32::MAX - 7;
    let mut seen = std::collections::BTreeSet::new();
    // All ones is the only one of the upper range that is not given.
    for _ in 0..2047 {
        let teid = next_teid(shape, id, &mut generation, |_| false).unwrap();
        assert!(seen.insert(teid) && shape.session(teid) == id && teid != u32::MAX);
        assert!(teid >> 31 == 1, "those of control planes that count are below");
    }
    let again = next_teid(shape, id, &mut generation, |_| false).unwrap();
    assert!(!seen.insert(again));
}

#[test]
fn what_is_taken_is_passed_over_and_all_ones_is_not_given() {
    let shape = TeidLayout::of(1 << 20);
    let (mut generation, first) = (0, 1 << 31);
    assert_eq!(next_teid(shape, SessionIndex(0), &mut generation, |_| false), Some(first));
    let taken = |teid| teid < first + (5 << 20);
    let next = Some(first + (5 << 20));
    assert_eq!(next_teid(shape, SessionIndex(0), &mut generation, taken), next);
    assert_eq!(next_teid(shape, SessionIndex(0), &mut generation, |_| true), None);
}
