use std::collections::BTreeMap;
use std::net::IpAddr;

use fastlane::table::EntryId;
use fastlane_testing::sleeping_lane;

use super::*;
use crate::config::nat_plan::NatPlan;
use crate::rules::compile::CompileError;
use crate::rules::layout::{TeidLayout, counter_slots};
use crate::rules::{Capacities, Private};
use crate::session::{Network, PdrId, Prefix, Progress, Qer, Source, Urr};
use crate::store::typical;
use crate::tests::stop_after;

const CAPACITIES: Capacities = Capacities {
    sessions: 16,
    complex: 16,
    lines: 16 + 12,
    blocks: 24,
    tunnels: 64,
    users: 64,
    framed: 32,
    parts: 16,
    answers: 16,
    nat: [16, 8, 64],
};

fn context() -> Context {
    Context {
        shape: TeidLayout::of(256),
        network: Network::of_data_networks(&[0, 1]),
        predefined: BTreeMap::new(),
        held_packets: 64,
        held_ms: 1000,
        nat: NatPlan::default(),
    }
}

fn open(memory: &Private) -> Published {
    Published::open(Tables::private(memory).unwrap(), context())
}

/// Returns a session that needs the given number of entries.
fn session(place: u32, version: u64, extra: u32) -> Session {
    let mut session = typical(place);
    (session.id, session.version) = (SessionIndex(place), version);
    for pdr in &mut session.pdrs {
        pdr.instance = None;
        if pdr.source == Source::Access {
            pdr.tunnel.as_mut().unwrap().teid = 0x100 * (extra + 1) + place;
        }
    }
    let prefix =
        |second, length| Prefix::new(IpAddr::from([172, second, place as u8, 0]), length).unwrap();
    for step in 0..extra {
        let mut pdr = session.pdrs[1].clone();
        pdr.id = 100 + step as PdrId;
        // A tunnel whose TEID contains another session index.
        let mut tunnel = session.pdrs[0].tunnel.unwrap();
        tunnel.teid = 0xABCD_00FF ^ place << 12 ^ step << 20;
        (pdr.tunnel, pdr.source) = (Some(tunnel), Source::Core);
        session.pdrs.push(pdr);
        session.pdrs[1].framed.push(prefix(16 + step as u8, 24 + step as u8 % 8));
    }
    session
}

/// Returns everything that lanes see, without its position in the tables.
fn seen(published: &Published) -> Vec<String> {
    let mut all = Vec::new();
    let Published { tables, .. } = published;
    for (place, rules) in tables.rules.iter() {
        let mut rules = *rules;
        let id = SessionIndex(place as u32);
        for block in published.chain(id) {
            let mut block = *tables.blocks.get(block as usize).unwrap();
            block.next = u32::from(block.next != 0);
            all.push(format!("block of {id:?} {block:?}"));
        }
        rules.cold.block = u32::from(rules.cold.block != 0);
        if rules.has_blocks() {
            for common in [&mut rules.uplink.common, &mut rules.downlink.common] {
                common.tunnel = u32::from(common.tunnel != 0);
            }
        }
        all.push(format!("{id:?} {rules:?}"));
    }
    all.extend(tables.users.iter().map(|(key, found)| format!("{key:?} {:?}", found.value)));
    all.extend(tables.tunnels.iter().map(|(key, found)| format!("{key:?} {:?}", found.value)));
    for (prefix, entry) in tables.framed4.iter() {
        all.push(format!("{prefix:?} {:?}", tables.framed.get(entry as usize)));
    }
    all.push(format!("{} owners", tables.framed.iter().count()));
    all.push(format!("{} blocks", tables.blocks.iter().count()));
    all.sort();
    all
}

/// Returns what an uninterrupted process publishes of these sessions.
fn fresh(sessions: &[Session]) -> Vec<String> {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    for session in sessions {
        published.publish(None, session).unwrap();
    }
    seen(&published)
}

fn recovered(memory: &Private, sessions: &[Session]) -> (Published, Recovered) {
    let mut published = open(memory);
    let recovered = recover(&mut published, sessions);
    (published, recovered)
}

fn recover(published: &mut Published, sessions: &[Session]) -> Recovered {
    published.recover(|id| sessions.iter().find(|session| session.id == id).cloned())
}

/// Opens the tables as the next process does, after the heap of the former one is lost. The tables'
/// writers have repair tests of their own.
fn next(published: Published) -> Published {
    Published::open(published.tables, context())
}

#[test]
fn a_session_that_was_published_is_found_and_one_that_was_withdrawn_is_not() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let empty = seen(&published);
    let mut before = session(3, 1, 0);
    published.publish(None, &before).unwrap();
    let user = before.pdrs[1].user.unwrap().v4.unwrap();
    assert_eq!(published.user(UeKey::v4(0, user)), Some(SessionIndex(3)));
    assert_eq!(published.user(UeKey::v4(1, user)), Some(SessionIndex(3)));
    assert_eq!(published.user(UeKey::v4(2, user)), None);
    for (version, extra) in [(2, 2), (3, 5), (4, 0), (5, 1)] {
        let now = session(3, version, extra);
        published.publish(Some(&before), &now).unwrap();
        assert_eq!(seen(&published), fresh(std::slice::from_ref(&now)), "{version}");
        before = now;
    }
    published.withdraw(&before);
    assert_eq!(seen(&published), empty);
}

#[test]
fn whoever_is_killed_anywhere_the_next_one_puts_it_right() {
    let other = session(5, 3, 1);
    for (old_extra, new_extra) in [(0, 3), (3, 0), (2, 4), (4, 4)] {
        let (before, after) = (session(3, 10, old_extra), session(3, 20, new_extra));
        // The record was committed before; if not, the old one is valid.
        let records = [[after.clone(), other.clone()], [before.clone(), other.clone()]];
        let expected = records.each_ref().map(|sessions| fresh(sessions));
        let mut stops = 0;
        for operations in 0.. {
            let memory = Private::new(CAPACITIES, sleeping_lane());
            let mut published = open(&memory);
            published.publish(None, &other).unwrap();
            published.publish(None, &before).unwrap();
            let done = stop_after(operations, || published.publish(Some(&before), &after));
            for (sessions, expected) in records.iter().zip(&expected) {
                for again in 0..3 {
                    // This process is killed, too.
                    published = next(published);
                    stop_after(again, || recover(&mut published, sessions));
                }
                published = next(published);
                let found = recover(&mut published, sessions);
                assert!(found.failed.is_empty(), "{:?}", found.failed);
                assert_eq!(seen(&published), *expected, "{old_extra} {new_extra}: {operations}");
            }
            if done.is_some() {
                break;
            }
            stops += 1;
        }
        assert!(stops >= 3, "{stops}");
    }
}

#[test]
fn a_withdrawal_that_was_killed_is_finished() {
    let (gone, other) = (session(3, 10, 3), session(5, 3, 1));
    let expected = fresh(std::slice::from_ref(&other));
    for operations in 0.. {
        let memory = Private::new(CAPACITIES, sleeping_lane());
        let mut published = open(&memory);
        published.publish(None, &other).unwrap();
        published.publish(None, &gone).unwrap();
        let done = stop_after(operations, || published.withdraw(&gone));
        published = next(published);
        recover(&mut published, std::slice::from_ref(&other));
        assert_eq!(seen(&published), expected, "{operations}");
        if done.is_some() {
            break;
        }
    }
}

#[test]
fn what_is_another_sessions_is_refused_and_nothing_has_changed() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let one = session(3, 1, 2);
    published.publish(None, &one).unwrap();
    let before = seen(&published);
    let mut taken = session(4, 2, 3);
    taken.pdrs[1].user = one.pdrs[1].user;
    let check = published.check(&taken);
    assert!(matches!(check, Err(PublishError::User { session: SessionIndex(3), .. })));
    let error = published.publish(None, &taken).unwrap_err();
    assert!(matches!(error, PublishError::User { session: SessionIndex(3), .. }));
    assert_eq!(seen(&published), before);
    let mut taken = session(4, 2, 3);
    taken.pdrs.last_mut().unwrap().tunnel = one.pdrs.last().unwrap().tunnel;
    let error = published.publish(None, &taken).unwrap_err();
    assert!(matches!(error, PublishError::Tunnel { session: SessionIndex(3), .. }), "{error}");
    assert_eq!(seen(&published), before);
    let mut taken = session(4, 2, 0);
    taken.pdrs[1].framed = one.pdrs[1].framed.clone();
    let error = published.publish(None, &taken).unwrap_err();
    assert!(matches!(error, PublishError::Network { session: SessionIndex(3), .. }), "{error}");
    assert_eq!(seen(&published), before);
    let mut broken = session(3, 2, 0);
    broken.pdrs[0].far = 99;
    let error = published.publish(Some(&one), &broken).unwrap_err();
    assert!(matches!(error, PublishError::Compile(CompileError::NoFar { far: 99, .. })));
    assert_eq!(seen(&published), before);
}

#[test]
fn when_blocks_run_out_nothing_has_changed_and_what_is_given_up_is_used_again() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let mut sessions = Vec::new();
    let error = loop {
        let place = sessions.len() as u32;
        let next = session(place, 1 + u64::from(place), 10);
        match published.publish(None, &next) {
            Ok(()) => sessions.push(next),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PublishError::Exhausted(_)), "{error}");
    let before = seen(&published);
    assert!(sessions.len() > 1);
    let left = sessions.pop().unwrap();
    published.withdraw(&left);
    published.publish(None, &left).unwrap();
    assert_eq!(seen(&published), before);
    for version in 100..200 {
        let old = published.rules(SessionIndex(0)).unwrap().version();
        let (now, then) = (session(0, version, 0), session(0, old.into(), 0));
        published.publish(Some(&then), &now).unwrap();
    }
}

fn with(session: &Session, urrs: u32, qers: u32) -> Session {
    let mut session = session.clone();
    let (urr, qer) = (session.urrs[0].clone(), session.qers[0]);
    let urr = Urr { progress: Progress::default(), ..urr };
    session.urrs = (0..urrs).map(|id| Urr { id, ..urr.clone() }).collect();
    session.qers = (0..qers).map(|id| Qer { id, line: 0, ..qer }).collect();
    for pdr in &mut session.pdrs {
        pdr.urrs = (0..urrs).collect();
        pdr.qers = (0..qers).collect();
    }
    session
}

#[test]
fn lines_are_each_ones_own_and_start_from_what_they_have_counted() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let lane = published.tables.state.lane(0);
    let mut one = with(&session(3, 1, 0), 3, 4);
    published.assign(None, &mut one).unwrap();
    published.publish(None, &one).unwrap();
    let lines: Vec<u32> = one.urrs.iter().map(|urr| urr.progress.line).collect();
    assert_eq!((lines[0], lines.len()), (3, 3));
    let meters: Vec<u32> = one.qers.iter().map(|qer| qer.line).collect();
    for all in [&lines, &meters] {
        let mut unique = all.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), all.len(), "{all:?}");
    }
    assert_eq!(meters[..3], lines[..], "meters use the lines of URRs first");
    lane.at(EntryId(lines[1])).add(counter_slots::DOWNLINK_OCTETS, 777);
    // One URR is removed and two are added; the others keep their slots.
    let mut two = one.clone();
    two.urrs.remove(1);
    for id in [10, 11] {
        two.urrs.push(Urr { id, progress: Progress::default(), ..two.urrs[0].clone() });
    }
    two.pdrs.iter_mut().for_each(|pdr| pdr.urrs = vec![0, 2, 10, 11]);
    two.version = 2;
    published.assign(Some(&one), &mut two).unwrap();
    assert_eq!(two.urrs[0].progress.line, lines[0]);
    assert_eq!(two.urrs[1].progress.line, lines[2]);
    assert!(two.urrs[2..].iter().all(|urr| !lines.contains(&urr.progress.line)));
    published.publish(Some(&one), &two).unwrap();
    published.withdraw(&two);
    // All slots are reused and keep their counters.
    let mut all = Vec::new();
    for place in 4..16 {
        let mut next = with(&session(place, 3, 0), 2, 1);
        if published.assign(None, &mut next).is_ok() {
            all.extend(next.urrs.iter().map(|urr| urr.progress.line));
        }
    }
    assert_eq!(all.len(), 24);
    assert!(all.contains(&lines[1]));
    assert_eq!(published.counters(lines[1]), [0, 0, 777, 0]);
    let mut more = with(&session(2, 3, 0), 2, 1);
    let error = published.assign(None, &mut more).unwrap_err().to_string();
    assert!(error.contains("no counter slot is free"), "{error}");
}

#[test]
fn lines_that_records_name_are_not_given_out_after_a_restart() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let mut one = with(&session(3, 1, 0), 4, 4);
    published.assign(None, &mut one).unwrap();
    published.publish(None, &one).unwrap();
    let (mut next, _) = recovered(&memory, std::slice::from_ref(&one));
    for place in 4..16 {
        let mut other = with(&session(place, 3, 0), 2, 2);
        if next.assign(None, &mut other).is_ok() {
            let lines = slot_allocator::extra_slots(&other);
            assert!(
                lines.iter().all(|line| !slot_allocator::extra_slots(&one).contains(line)),
                "{lines:?}"
            );
        }
    }
}

#[test]
fn the_longest_network_of_each_instance_is_found() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let network = |place: u32, instance, address: [u8; 4], length| {
        let mut session = session(place, u64::from(place), 0);
        session.pdrs[1].instance = Some(instance);
        session.pdrs[1].framed = vec![Prefix::new(address.into(), length).unwrap()];
        session
    };
    let wide = network(1, 0, [10, 0, 0, 0], 8);
    let other = network(2, 1, [10, 1, 0, 0], 16);
    let narrow = network(3, 0, [10, 1, 2, 0], 24);
    let find = |published: &Published, address: [u8; 4], instance| {
        let tables = published.tables();
        let entry = tables.framed4.lookup(address.into())?;
        tables.framed.get(entry as usize)?.session(instance)
    };
    for order in [[&wide, &other, &narrow], [&narrow, &other, &wide], [&other, &narrow, &wide]] {
        for session in order {
            published.publish(None, session).unwrap();
        }
        assert_eq!(find(&published, [10, 1, 9, 9], 0), Some(wide.id));
        assert_eq!(find(&published, [10, 1, 9, 9], 1), Some(other.id));
        assert_eq!(find(&published, [10, 1, 2, 9], 0), Some(narrow.id));
        assert_eq!(find(&published, [10, 1, 2, 9], 1), Some(other.id));
        assert_eq!(find(&published, [10, 2, 2, 9], 1), None);
        published.withdraw(&narrow);
        assert_eq!(find(&published, [10, 1, 2, 9], 0), Some(wide.id));
        published.withdraw(&wide);
        assert_eq!(find(&published, [10, 1, 2, 9], 0), None);
        published.withdraw(&other);
        assert_eq!(published.tables().framed.iter().count(), 0);
    }
}

#[test]
fn a_place_is_used_again_only_after_every_lane_has_passed() {
    use fastlane::counters::{Counters, FENCE_TURNS, LaneCounter};
    let counters = Counters::create(1, 0).unwrap();
    let lanes = GracePeriods::new(fastlane_testing::lanes_of(&counters).into());
    let turn = |number| counters.lane(0).publish(LaneCounter::Turn, number);
    let mut places = IndexAllocator::new(10, 12, &lanes);
    turn(FENCE_TURNS);
    let taken = [places.take(&lanes), places.take(&lanes)];
    assert_eq!((taken, places.take(&lanes)), ([Some(10), Some(11)], None));
    places.retire(11);
    places.retire(9);
    std::thread::scope(|scope| {
        let lane = scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            turn(2 * FENCE_TURNS);
        });
        assert_eq!(places.take(&lanes), Some(11));
        assert!(counters.lane(0).load(LaneCounter::Turn) == 2 * FENCE_TURNS);
        lane.join().unwrap();
    });
    places.retire(10);
    assert_eq!(places.left(), 1);
    assert_eq!(places.take(&lanes), None, "the lane is stuck: for a second, then it is said");
}

#[test]
fn a_lane_that_has_read_the_rules_finds_their_blocks_until_its_turn_ends() {
    use fastlane::counters::{Counters, FENCE_TURNS, LaneCounter};
    let counters = Counters::create(1, 0).unwrap();
    let turn = |number| counters.lane(0).publish(LaneCounter::Turn, number);
    let mut tables = Tables::private(&Private::new(CAPACITIES, sleeping_lane())).unwrap();
    tables.grace_periods = GracePeriods::new(fastlane_testing::lanes_of(&counters).into());
    let mut published = Published::open(tables, context());
    turn(FENCE_TURNS);
    let versions = [1, 2, 3].map(|version| session(0, version, 3));
    published.publish(None, &versions[0]).unwrap();
    let read = published.chain(SessionIndex(0));
    assert!(!read.is_empty());
    let is_there = |published: &Published| {
        read.iter().filter(|place| published.tables.blocks.get(**place as usize).is_some()).count()
    };
    published.publish(Some(&versions[0]), &versions[1]).unwrap();
    assert_ne!(published.chain(SessionIndex(0)), read);
    assert_eq!(is_there(&published), read.len(), "the lane has not passed a turn");
    turn(2 * FENCE_TURNS);
    published.publish(Some(&versions[1]), &versions[2]).unwrap();
    assert_eq!(published.tables.blocks.iter().count(), 2 * read.len(), "those of two versions");
}

#[test]
fn what_was_published_with_another_context_is_published_anew() {
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let sessions = [session(3, 7, 0), session(4, 8, 2)];
    for session in &sessions {
        published.publish(None, session).unwrap();
    }
    let other = Context { network: Network::of_data_networks(&[0, 1, 2]), ..context() };
    assert_ne!(other.fingerprint(), context().fingerprint());
    let mut next = Published::open(published.tables, other);
    next.distrust();
    assert_eq!(recover(&mut next, &sessions).published, 2);
    let user = sessions[0].pdrs[1].user.unwrap().v4.unwrap();
    assert_eq!(next.user(UeKey::v4(2, user)), Some(SessionIndex(3)));
    let mut last = Published::open(next.tables, context());
    last.distrust();
    recover(&mut last, &sessions);
    assert_eq!(seen(&last), fresh(&sessions));
}

/// Checks that `check` predicts `publish`, until there is no room; a failed publication leaves
/// nothing.
#[test]
fn what_has_room_is_published_and_what_has_not_is_known_before() {
    for (what, small) in [
        ("UE address", Capacities { users: 10, ..CAPACITIES }),
        ("tunnel", Capacities { tunnels: 5, ..CAPACITIES }),
        ("network", Capacities { framed: 6, ..CAPACITIES }),
        ("block", Capacities { blocks: 4, ..CAPACITIES }),
    ] {
        let memory = Private::new(small, sleeping_lane());
        let mut published = open(&memory);
        let mut refused = Vec::new();
        for place in 0..16 {
            let session = session(place, 1, 1 + place % 3);
            let before = seen(&published);
            match published.check(&session) {
                Ok(()) => published.publish(None, &session).expect("it has been checked"),
                Err(PublishError::Exhausted(why)) => {
                    refused.push(why);
                    assert_eq!(seen(&published), before);
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused.iter().any(|why| why.contains(what)), "{what}: {refused:?}");
        assert!(refused.len() < 16, "{what}");
    }
}

#[test]
fn lanes_look_for_networks_only_while_there_are_some() {
    use crate::rules::layout::FRAMED_ANY;
    let memory = Private::new(CAPACITIES, sleeping_lane());
    let mut published = open(&memory);
    let has = |published: &Published| published.tables.framed.get(FRAMED_ANY).is_some();
    let (none, some) = (session(3, 1, 0), session(4, 1, 1));
    published.publish(None, &none).unwrap();
    assert!(!has(&published));
    published.publish(None, &some).unwrap();
    assert!(has(&published));
    let mut published = next(published);
    recover(&mut published, &[none.clone(), some.clone()]);
    assert!(has(&published));
    published.withdraw(&some);
    assert!(!has(&published));
    published.publish(None, &some).unwrap();
    let mut published = next(published);
    recover(&mut published, std::slice::from_ref(&none));
    assert!(!has(&published));
}
