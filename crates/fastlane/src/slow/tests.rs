use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use fastlane_core::{LaneConfig, Pool};
use fastlane_table::counters::LaneCounter;
use fastlane_table::messages::{Channel, Doorbells};
use fastlane_table::{Doorbell, EntryId, SharedMemory, Spec};
use rustix::event::{Timespec, epoll};

use super::*;
use crate::app_service::SessionResources;
use crate::message_rings::MessageRings;
use crate::session::{Reservation, Session};
use crate::tables::Tables;

/// Application without ports, in a directory of its own.
struct Fast {
    _directory: tempfile::TempDir,
    path: String,
    counters: Counters,
    tables: Arc<Tables>,
    /// Descriptors of the message rings.
    descriptors: Vec<Arc<OwnedFd>>,
    session: Option<Session>,
}

impl Fast {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fast.sock");
        let counters = Counters::create(1, 0).unwrap();
        let tables = Tables::new(BTreeMap::from([("blocked".to_owned(), 4)]), vec![]);
        let tables = Arc::new(tables);
        let name = "blocked";
        tables.part(name, Role::Table, |it| Spec::hash::<u32, u64>(name, it)).unwrap();
        tables.part(name, Role::State, |it| Spec::state::<2>(name, it, 1)).unwrap();
        tables.part(name, Role::Pending, |it| Spec::pending(name, it, 1)).unwrap();
        let path = path.to_str().unwrap().to_owned();
        let (descriptors, session) = (vec![], None);
        let mut fast = Self { _directory: directory, path, counters, tables, descriptors, session };
        fast.serve();
        fast
    }

    /// Starts the session, or restarts it as a successor with the same tables.
    fn serve(&mut self) {
        let application = Application {
            name: "fast".to_owned(),
            version: "1".to_owned(),
            pid: std::process::id(),
            lanes: vec![crate::describe::LaneFacts { cpu: None, idle: "busy".to_owned() }],
            ports: vec![],
        };
        let memory = SharedMemory::create("slow-test", 64 * 2048).unwrap();
        let pool = Pool::new(memory, 2048, 192).unwrap();
        let mut lane = [LaneConfig::new(pool, vec![], self.counters.lane(0))];
        let rings = MessageRings::open(&mut lane, 4, None).unwrap();
        self.descriptors = rings.parts().1;
        let (tables, messages) = (Arc::clone(&self.tables), Some(rings));
        let resources = SessionResources { tables, messages, ..SessionResources::default() };
        let reservation = Reservation::new(Path::new(&self.path)).unwrap();
        let session = Session::serve(
            reservation,
            crate::describe::Description::new(application),
            &self.counters,
            resources,
        )
        .unwrap();
        self.session = Some(session);
    }

    /// Returns the lane's side of the message rings.
    fn channel(&self) -> Channel {
        let share = |place: usize| self.descriptors[place].try_clone().unwrap();
        let memory = Arc::new(SharedMemory::attach_writable(share(0)).unwrap());
        let bell = |place| Doorbell::attach(share(place)).unwrap();
        Channel::attach_lane(&memory, 0, Doorbells { lane: bell(2), slow: bell(1) }).unwrap()
    }

    /// Returns the lane state of the table.
    fn state(&self) -> State<2> {
        let part = self.tables.part("blocked", Role::State, |it| Spec::state::<2>("", it, 1));
        State::attach(&part.unwrap()).unwrap()
    }

    fn pending(&self) -> Pending {
        let part = self.tables.part("blocked", Role::Pending, |it| Spec::pending("", it, 1));
        Pending::attach(&part.unwrap()).unwrap()
    }

    /// Marks the lane as asleep, so that no writer waits for it.
    fn sleep(&self) {
        self.counters.lane(0).publish(LaneCounter::Asleep, 1);
    }
}

#[test]
fn a_slow_path_in_the_same_process_writes_and_reads() {
    let fast = Fast::new();
    fast.sleep();
    let slow = attach(&fast.path).unwrap();
    assert!(slow.is_alive() && slow.application().name == "fast");
    let mut blocked = slow.hash_writer::<u32, u64>("blocked").unwrap();
    let entry = blocked.insert(&7, &70).unwrap();
    fast.state().lane(0).at(entry).add(1, 5);
    assert_eq!(slow.state::<2>("blocked").unwrap().read(entry), [0, 5]);
    let tables = slow.tables().unwrap();
    assert_eq!((tables[0].kind, tables[0].entries, tables[0].capacity), ("hash", 1, 4));
    assert!(tables[0].has_state && tables[0].has_pending);
    let writer = tables[0].writer.clone().unwrap();
    assert!(writer.starts_with(&format!("process {} (", std::process::id())), "{writer}");
    assert!(slow.state::<3>("blocked").unwrap_err().to_string().contains("value size"));
}

#[test]
fn what_belonged_to_a_key_is_forgotten_before_another_gets_its_entry() {
    let fast = Fast::new();
    fast.sleep();
    let slow = attach(&fast.path).unwrap();
    let mut blocked = slow.hash_writer::<u32, u64>("blocked").unwrap();
    for key in 0..100 {
        let entry = blocked.insert(&key, &1).unwrap();
        let state = fast.state();
        assert_eq!(state.read(entry), [0, 0], "key {key} has another's");
        state.lane(0).at(entry).add(0, 9);
        fast.pending().lane(0).raise(entry);
        assert!(blocked.remove(&key));
    }
}

#[test]
fn there_is_one_writer_until_it_is_dropped() {
    let fast = Fast::new();
    let slow = attach(&fast.path).unwrap();
    let writer = slow.hash_writer::<u32, u64>("blocked").unwrap();
    let error = slow.hash_writer::<u32, u64>("blocked").map(drop).unwrap_err();
    assert!(matches!(error, SlowError::AlreadyWriter { .. }), "{error}");
    let other = attach(&fast.path).unwrap();
    let error = other.hash_writer::<u32, u64>("blocked").map(drop).unwrap_err();
    assert!(matches!(error, SlowError::Written { .. }), "{error}");
    let expected = format!("table `blocked`: process {} (", std::process::id());
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(other.pending("blocked").is_err(), "events are the writer's");
    drop(slow); // the writer keeps what it was granted
    assert!(other.hash_writer::<u32, u64>("blocked").is_err());
    drop(writer);
    other.hash_writer::<u32, u64>("blocked").unwrap();
    let error = other.hash_writer::<u32, u64>("blockd").map(drop).unwrap_err().to_string();
    assert!(error.contains("there are blocked"), "{error}");
}

#[test]
fn events_stay_until_they_are_done() {
    let fast = Fast::new();
    let slow = attach(&fast.path).unwrap();
    fast.pending().lane(0).raise(EntryId(2));
    for _ in 0..2 {
        let events = slow.pending("blocked").unwrap();
        let mut seen = vec![];
        events.scan(|entry, number| seen.push((entry, number)));
        assert_eq!(seen, [(EntryId(2), 1)]);
    }
    slow.pending("blocked").unwrap().done(EntryId(2), 1);
    slow.pending("blocked").unwrap().scan(|entry, _| panic!("{entry:?}"));
}

#[test]
fn a_writer_that_outlives_the_application_uses_nothing_twice() {
    let mut fast = Fast::new();
    fast.sleep();
    let slow = attach(&fast.path).unwrap();
    let mut blocked = slow.hash_writer::<u32, u64>("blocked").unwrap();
    assert!((0..1000).all(|value| blocked.insert(&1, &value).is_ok()));
    let blocked = &mut *blocked; // held over the end
    drop(fast.session.take());
    assert!(!slow.is_alive());
    std::thread::sleep(Duration::from_millis(5));
    // 68 slots: those that are free are used up, those that were given up are not.
    let writes = (0..100).take_while(|value| blocked.insert(&1, value).is_ok()).count();
    assert!(writes < 70, "{writes}");
    let error = blocked.insert(&1, &0).unwrap_err().to_string();
    assert!(error.contains("passed no turn"), "{error}");
}

#[test]
fn messages_end_with_the_application() {
    let mut fast = Fast::new();
    let slow = attach(&fast.path).unwrap();
    let mut messages = slow.messages().unwrap();
    let error = attach(&fast.path).unwrap().messages().map(drop).unwrap_err();
    let expected = format!("the message rings: process {} (", std::process::id());
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(messages.receive(Duration::from_millis(1)).unwrap().is_none());
    assert!(!messages.send(3, 1, b"to nobody"));
    let waits = std::thread::spawn(move || messages.receive(Duration::from_secs(60)).map(|_| ()));
    drop(fast.session.take());
    assert!(matches!(waits.join().unwrap(), Err(SlowError::Ended)));
    let error = attach_wait(&fast.path, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, SlowError::Session(SessionError::Absent { .. })), "{error}");
}

#[test]
fn an_application_is_waited_for() {
    let fast = Fast::new();
    let path = fast.path.clone();
    let later = std::path::Path::new(&path).with_extension("later");
    let waits = std::thread::spawn({
        let later = later.to_str().unwrap().to_owned();
        move || attach_wait(&later, Duration::from_secs(60)).map(|slow| slow.application().pid)
    });
    std::thread::sleep(Duration::from_millis(50));
    // One that listens, and ends before it is ready to answer.
    let listener = std::os::unix::net::UnixListener::bind(&later).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(&later).unwrap();
    std::fs::hard_link(&path, &later).unwrap();
    assert_eq!(waits.join().unwrap().unwrap(), std::process::id());
}

#[test]
fn a_writer_that_goes_on_keeps_others_out_under_the_successor() {
    let mut fast = Fast::new();
    let slow = attach(&fast.path).unwrap();
    let writer = slow.hash_writer::<u32, u64>("blocked").unwrap();
    let events = slow.pending("blocked").unwrap();
    drop(slow);
    drop(fast.session.take());
    fast.serve();
    let write = |slow: &SlowPath| slow.hash_writer::<u32, u64>("blocked").map(drop);
    let error = write(&attach(&fast.path).unwrap()).unwrap_err();
    assert!(matches!(error, SlowError::Written { .. }), "{error}");
    let successor = attach(&fast.path).unwrap();
    let writer_of = || successor.tables().unwrap()[0].writer.clone();
    assert!(writer_of().is_some(), "the successor names a writer that it has not granted it to");
    drop(writer);
    assert!(write(&attach(&fast.path).unwrap()).is_err(), "the events are of the table");
    assert!(writer_of().is_some());
    drop(events);
    assert_eq!(writer_of(), None);
    write(&attach(&fast.path).unwrap()).unwrap();
}

#[test]
fn messages_are_had_by_one_at_a_time_and_again() {
    let fast = Fast::new();
    let slow = attach(&fast.path).unwrap();
    let mut lane = fast.channel();
    for number in 0..3_u32 {
        let mut messages = slow.messages().unwrap();
        let error = slow.messages().map(drop).unwrap_err();
        assert!(matches!(error, SlowError::MessagesInUse), "{error}");
        assert!(lane.sender.send(number, b"hint"));
        lane.sender.publish();
        let message = messages.receive(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((message.lane, message.kind, message.body), (0, number, &b"hint"[..]));
    }
}

#[test]
fn messages_and_an_end_are_waited_for_among_other_things() {
    let mut fast = Fast::new();
    let slow = attach(&fast.path).unwrap();
    let (mut lane, mut messages) = (fast.channel(), slow.messages().unwrap());
    // As event loops do: told once for each edge.
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&instance, &messages, epoll::EventData::new_u64(1), flags).unwrap();
    epoll::add(&instance, &slow, epoll::EventData::new_u64(2), flags).unwrap();
    let wait = |seconds| {
        let mut events = Vec::with_capacity(4);
        let patience = Timespec { tv_sec: seconds, tv_nsec: 0 };
        epoll::wait(&instance, rustix::buffer::spare_capacity(&mut events), Some(&patience))
            .unwrap();
        events.iter().map(|event| event.data.u64()).collect::<Vec<u64>>()
    };
    assert!(messages.arm());
    messages.disarm(); // a lane that begins rings once
    for kind in 0..3 {
        assert!(messages.arm());
        assert!(wait(0).is_empty());
        assert!(lane.sender.send(kind, b""));
        lane.sender.publish();
        assert_eq!(wait(60), [1]);
        messages.disarm();
        assert_eq!(messages.receive(Duration::ZERO).unwrap().unwrap().kind, kind);
        assert!(messages.receive(Duration::ZERO).unwrap().is_none());
    }
    drop(fast.session.take());
    assert_eq!(wait(60), [2]);
    assert!(!slow.is_alive());
}

#[test]
fn all_of_it_may_go_to_other_threads() {
    fn may_go<T: Send>() {}
    may_go::<SlowPath>();
    may_go::<Writer<HashWriter<u32, u64>>>();
    may_go::<Writer<Lpm6Writer>>();
    may_go::<PendingEvents>();
    may_go::<State<2>>();
    may_go::<Messages>();
    may_go::<HandoverHolder>();
}
