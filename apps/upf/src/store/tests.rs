use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fastlane::table::{ArrayWriter, SharedMemory, Spec, Value};
use fastlane_testing::sleeping_lane;
use proptest::prelude::*;

use super::*;
use crate::rules::attach_successor;
use crate::tests::stop_after;

/// Memory of the tables, which outlives each store.
pub(crate) struct Memory([Mutex<Arc<SharedMemory>>; 3]);

const SESSIONS: usize = 64;
const PARTS: usize = 100;
const ANSWERS: usize = 20;

impl Memory {
    fn new() -> Self {
        Self::of(SESSIONS, PARTS, ANSWERS)
    }

    pub(crate) fn of(sessions: usize, parts: usize, answers: usize) -> Self {
        let sessions = Spec::array::<SessionRecord>("sessions", sessions).create();
        let parts = Spec::array::<SessionPart>("session-parts", parts).create();
        let answers = Spec::array::<ResponseRecord>("answers", answers).create();
        Self([sessions, parts, answers].map(|it| Mutex::new(it.unwrap())))
    }

    pub(crate) fn open(&self) -> Store {
        let [sessions, parts, answers] = &self.0;
        Store::open(cells(sessions), cells(parts), cells(answers))
    }
}

fn cells<V: Value>(memory: &Mutex<Arc<SharedMemory>>) -> Cells<V> {
    let attach = |memory: &_| ArrayWriter::attach(memory, &sleeping_lane());
    Box::new(Box::new(attach_successor(&mut memory.lock().unwrap(), attach).unwrap()))
}

fn key(sequence: u32) -> RequestKey {
    RequestKey {
        peer: SocketAddr::from(([10, 0, 0, 1], 8805)),
        sequence,
        message_type: 50,
        digest: 1,
    }
}

/// Returns the session with its first PDR repeated `count` times.
fn with_pdrs(place: u32, count: u16, version: u64) -> Session {
    let mut session = typical(place);
    let first = session.pdrs[0].clone();
    session.pdrs.extend((3..count).map(|id| crate::session::Pdr { id, ..first.clone() }));
    Session { version, ..session }
}

/// Commits a session that fits its record, with the response to a request.
fn respond(store: &mut Store, key: &RequestKey, bytes: &[u8], at: u64) {
    let session = Session { version: store.next_version(), ..typical(60) };
    store.commit(&session, Some((key, bytes)), at).unwrap();
}

fn gone(place: u32, version: u64) -> Session {
    Session { is_deleted: true, version, ..typical(place) }
}

#[test]
fn what_is_committed_is_there_for_the_next_process() {
    let memory = Memory::new();
    let long: Vec<u8> = (0..2000).map(|byte| byte as u8).collect();
    let mut store = memory.open();
    let session = with_pdrs(7, 100, store.next_version());
    store.commit(&session, Some((&key(1), &long)), 500).unwrap();
    respond(&mut store, &key(2), b"short", 500);
    let free = store.free_parts();
    assert!(free < PARTS as u32 - 9, "{free}");
    drop(store);
    let mut store = memory.open();
    assert_eq!((store.get(session.id), store.free_parts()), (Some(session.clone()), free));
    assert_eq!(store.answer(&key(1), 500, &|_| 0), Some(long));
    assert_eq!(store.answer(&key(2), 500, &|_| 0).as_deref(), Some(&b"short"[..]));
    assert_eq!(store.answer(&key(1), 501, &|_| 0), None, "it is asked for too late");
    assert_eq!(store.answer(&key(3), 0, &|_| 0), None);
    assert!(store.next_version() > session.version);
}

#[test]
fn one_that_is_gone_says_when_and_leaves_its_numbers() {
    let memory = Memory::new();
    let mut store = memory.open();
    store.commit(&with_pdrs(3, 40, 1), None, 10).unwrap();
    store.commit(&gone(3, 2), Some((&key(9), b"bye")), 20).unwrap();
    let store = memory.open();
    assert_eq!(store.get(SessionIndex(3)), None);
    let record = store.record(SessionIndex(3)).unwrap();
    assert_eq!((record.gone_at(), record.generation), (Some(20), typical(3).generation));
    assert_eq!(record.had(), Some(AllocatedAddresses::to(&gone(3, 2))));
    assert_eq!(store.answer(&key(9), 0, &|_| 0).as_deref(), Some(&b"bye"[..]));
    assert_eq!(store.free_parts(), PARTS as u32);
}

#[test]
fn the_oldest_answers_make_room() {
    let memory = Memory::new();
    let mut store = memory.open();
    let long = vec![7; 600];
    for number in 0..55 {
        respond(&mut store, &key(number), &long, u64::from(number));
        if number % 9 == 4 {
            store = memory.open();
        }
    }
    let found = (0..55).filter(|number| store.answer(&key(*number), 0, &|_| 0).is_some());
    assert_eq!(found.collect::<Vec<_>>(), (35..55).collect::<Vec<_>>());
    assert_eq!(store.answers.capacity(), ANSWERS);
    assert_eq!(store.free_parts() as usize, PARTS - ANSWERS * (600 - record::ANSWER).div_ceil(232));
}

#[test]
fn the_newer_of_two_equal_requests_is_answered() {
    let memory = Memory::new();
    let mut store = memory.open();
    respond(&mut store, &key(1), b"then", 1);
    respond(&mut store, &key(1), b"now", 2);
    assert_eq!(store.answer(&key(1), 0, &|_| 0).as_deref(), Some(&b"now"[..]));
    assert_eq!(memory.open().answer(&key(1), 0, &|_| 0).as_deref(), Some(&b"now"[..]));
}

#[test]
fn what_finds_no_room_changes_nothing() {
    let memory = Memory::new();
    let mut store = memory.open();
    let before = with_pdrs(1, 200, 1);
    store.commit(&before, None, 1).unwrap();
    let free = store.free_parts();
    for place in [1, 2] {
        let many = with_pdrs(place, 1500, 2);
        let error = store.commit(&many, Some((&key(1), b"yes")), 1).unwrap_err();
        assert!(matches!(error, StoreError::NoPart { parts: PARTS }), "{error}");
    }
    let error = store.commit(&with_pdrs(2, 4000, 3), None, 1).unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
    assert_eq!((store.free_parts(), store.answer(&key(1), 0, &|_| 0)), (free, None));
    assert_eq!(memory.open().get(SessionIndex(1)), Some(before));
}

/// Request of a history: the session afterwards and the length of the response.
type Step = (Session, usize);

fn history() -> Vec<Step> {
    vec![
        (with_pdrs(5, 3, 1), 80),
        (with_pdrs(5, 60, 2), 900),
        (with_pdrs(5, 90, 3), 60),
        (with_pdrs(6, 30, 4), 900),
        (with_pdrs(5, 3, 5), 60),
        (gone(5, 6), 300),
        (with_pdrs(5, 50, 7), 80),
    ]
}

fn answer_of(step: usize, length: usize) -> Vec<u8> {
    vec![step as u8 + 1; length]
}

fn run(store: &mut Store, step: usize, (session, length): &Step) {
    let answer = answer_of(step, *length);
    store.commit(session, Some((&key(step as u32), &answer)), step as u64).unwrap();
}

fn seen(store: &Store) -> (Option<Session>, Option<Session>, u32) {
    (store.get(SessionIndex(5)), store.get(SessionIndex(6)), store.free_parts())
}

/// Stops each step of a history after each table operation. Then a successor continues, and the
/// peer retransmits.
#[test]
fn a_kill_at_any_operation_leaves_the_session_before_or_after_and_the_answer_with_it() {
    let steps = history();
    let undisturbed = Memory::new();
    let mut expected = vec![seen(&undisturbed.open())];
    for (number, step) in steps.iter().enumerate() {
        let mut store = undisturbed.open();
        run(&mut store, number, step);
        expected.push(seen(&store));
    }
    let mut stops = 0;
    for stopped in 0..steps.len() {
        for operations in 0.. {
            let memory = Memory::new();
            let mut store = memory.open();
            (0..stopped).for_each(|number| run(&mut store, number, &steps[number]));
            let ended = stop_after(operations, || run(&mut store, stopped, &steps[stopped]));
            drop(store);
            // The successor is stopped too, during its repair.
            for repairs in [0, 1, 3] {
                stop_after(repairs, || memory.open());
            }
            let mut store = memory.open();
            let answer = store.answer(&key(stopped as u32), 0, &|_| 0);
            let committed = store.record(steps[stopped].0.id).map(|it| it.version)
                == Some(steps[stopped].0.version);
            assert_eq!(seen(&store), expected[stopped + usize::from(committed)]);
            let whole = answer_of(stopped, steps[stopped].1);
            assert_eq!(answer, committed.then(|| whole.clone()), "{stopped} {operations}");
            if !committed {
                run(&mut store, stopped, &steps[stopped]);
            }
            for number in stopped..steps.len() {
                let repeated = store.answer(&key(number as u32), 0, &|_| 0);
                if repeated.is_none() {
                    run(&mut store, number, &steps[number]);
                }
                let length = steps[number].1;
                assert_eq!(
                    store.answer(&key(number as u32), 0, &|_| 0),
                    Some(answer_of(number, length))
                );
                assert_eq!(seen(&store), expected[number + 1], "{stopped} {operations} {number}");
            }
            stops += 1;
            if ended.is_some() {
                break;
            }
        }
    }
    assert!(stops > 60, "{stops}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_session_is_kept(sessions in prop::collection::vec((any_session(), 0_u32..4), 1..12)) {
        let memory = Memory::new();
        let mut store = memory.open();
        let mut last = std::collections::BTreeMap::new();
        for (session, place) in sessions {
            let (id, version) = (SessionIndex(place), store.next_version());
            let session = Session { id, version, ..session };
            store.commit(&session, None, 1).unwrap();
            last.insert(id, session);
        }
        let reopened = memory.open();
        prop_assert_eq!(reopened.free_parts(), store.free_parts());
        for (id, session) in last {
            let expected = Some(session).filter(|session| !session.is_deleted);
            prop_assert_eq!(reopened.get(id), expected.clone());
            prop_assert_eq!(store.get(id), expected);
        }
    }
}
