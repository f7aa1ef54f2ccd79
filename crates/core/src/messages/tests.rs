use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastlane_table::counters::{Counters, LaneCounter};
use fastlane_table::messages::{Doorbells, Receiver, Sender, size};
use fastlane_table::{Doorbell, SharedMemory, SharedWords};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::*;
use crate::{App, Idle, Lane, LaneConfig, Packet, Partial, Pool, PortId, Turn};

const CAPACITY: usize = 4096;
/// Number of the lane.
const NUMBER: u16 = 1;

struct Rig<A> {
    lane: Lane<A>,
    counters: Counters,
    memory: Arc<SharedMemory>,
    slow: Channel,
}

fn rig<A: App>(app: A) -> Rig<A> {
    let (parts, counters, memory, slow) = parts();
    Rig { lane: Lane::new(app, parts), counters, memory, slow }
}

fn parts() -> (LaneConfig, Counters, Arc<SharedMemory>, Channel) {
    let memory = Arc::new(SharedMemory::create("messages", size(2, CAPACITY)).unwrap());
    let (lane, slow) = (Doorbell::create().unwrap(), Doorbell::create().unwrap());
    let bells = || Doorbells { lane: lane.try_clone().unwrap(), slow: slow.try_clone().unwrap() };
    let number = usize::from(NUMBER);
    Channel::create(&memory, 0, CAPACITY, bells()).unwrap();
    let channel = Channel::create(&memory, number, CAPACITY, bells()).unwrap();
    let slow = Channel::attach_slow(&memory, number, bells()).unwrap();
    let counters = Counters::create(1, 1).unwrap();
    let frames = SharedMemory::create("messages-test", 8 * 512).unwrap();
    let pool = Pool::new(frames, 512, 64).unwrap();
    let parts = LaneConfig::new(pool, vec![], counters.lane(0));
    let messages = Some(Messages::new(channel, NUMBER));
    let parts = LaneConfig { idle: Idle::Interrupt, messages, ..parts };
    (parts, counters, memory, slow)
}

impl<A> Rig<A> {
    fn count(&self, counter: LaneCounter) -> u64 {
        self.counters.lane(0).load(counter)
    }
}

/// Application that runs one function each turn.
struct EachTurn<F>(F);

impl<F: FnMut(&mut Turn)> App for EachTurn<F> {
    fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}

    fn turn(&mut self, turn: &mut Turn) {
        (self.0)(turn);
    }
}

fn kinds(receiver: &mut Receiver) -> Vec<u32> {
    let mut kinds = vec![];
    while let Some(message) = receiver.receive().unwrap() {
        kinds.push(message.kind);
    }
    kinds
}

fn say(sender: &mut Sender, kind: u32, body: &[u8]) {
    assert!(sender.send(kind, body));
    sender.publish();
}

#[test]
fn what_a_turn_sends_is_seen_when_it_has_ended_and_rung_for_once() {
    let mut rig = rig(EachTurn(|turn: &mut Turn| {
        for kind in 0..5 {
            assert!(turn.send_value(kind, &[kind; 3]));
        }
    }));
    assert!(rig.slow.receiver.begin_wait());
    assert!(rig.lane.turn() == 0, "who sends may sleep");
    let bell = rustix::io::dup(rig.slow.receiver.doorbell().as_fd()).unwrap();
    let mut rung = [0; 8];
    rustix::io::read(&bell, &mut rung).unwrap();
    assert_eq!(u64::from_ne_bytes(rung), 1, "once a turn");
    rig.lane.turn();
    assert!(rustix::io::read(&bell, &mut rung).is_err(), "once a wait");
    rig.slow.receiver.end_wait();
    assert_eq!(kinds(&mut rig.slow.receiver), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    assert_eq!(rig.count(LaneCounter::MessagesSent), 10);
    assert_eq!(rig.lane.close(), 0);
}

#[test]
fn what_finds_no_room_is_counted_and_so_is_what_nobody_hears() {
    let mut answers = vec![];
    let mut rig = rig(EachTurn(move |turn: &mut Turn| {
        answers.extend((0..100).map(|kind| turn.send(kind, &[0; 92])));
        assert_eq!(answers.iter().filter(|sent| **sent).count(), 36);
        assert!(!turn.send(1, &[0; CAPACITY]));
    }));
    rig.lane.turn();
    assert_eq!(rig.count(LaneCounter::MessagesSent), 36);
    assert_eq!(rig.count(LaneCounter::MessagesLost), 65);
    assert_eq!(kinds(&mut rig.slow.receiver), (0..36).collect::<Vec<_>>());
    assert_eq!(rig.slow.receiver.lost(), 65);

    let counters = Counters::create(1, 1).unwrap();
    let frames = SharedMemory::create("messages-test", 8 * 512).unwrap();
    let pool = Pool::new(frames, 512, 64).unwrap();
    let app = EachTurn(|turn: &mut Turn| assert!(!turn.send(1, b"") && turn.receive().is_none()));
    let mut lane = Lane::new(app, LaneConfig::new(pool, vec![], counters.lane(0)));
    lane.turn();
    assert_eq!(counters.lane(0).load(LaneCounter::MessagesLost), 1);
}

/// Application that punts a packet of port 9.
fn punt(turn: &mut Turn, length: usize, reason: u32, change: impl FnOnce(&mut Packet)) {
    let frames = SharedMemory::create("messages-test", 4096).unwrap();
    let mut pool = Pool::new(frames, 4096, 64).unwrap();
    let mut packet = pool.alloc_packet(length, PortId(9)).unwrap();
    change(&mut packet);
    assert!(turn.punt(&packet, reason));
    pool.release(&mut packet);
}

#[test]
fn a_punted_packet_comes_with_where_when_and_why() {
    let partial = Partial { start: 34, offset: 16 };
    let mut rig = rig(EachTurn(move |turn: &mut Turn| {
        punt(turn, 300, 42, |packet| {
            packet.bytes_mut().fill(7);
            packet.set_partial_checksum(Some(partial));
            packet.set_from_kernel();
        });
        let now = turn.now();
        assert!(turn.send_value(1, &now));
    }));
    rig.lane.turn();
    let mut seen = vec![];
    while let Some(message) = rig.slow.receiver.receive().unwrap() {
        seen.push((message.kind, message.body.to_vec()));
    }
    assert_eq!((seen[0].0, seen[1].0), (PUNT, 1));
    let punted = Punted::read(&seen[0].1).unwrap();
    assert_eq!(punted.time.to_ne_bytes(), seen[1].1[..]);
    let expected = Punted {
        time: punted.time,
        length: 300,
        reason: 42,
        port: 9,
        lane: NUMBER,
        is_from_kernel: true,
        partial_checksum: Some((34, 16)),
        bytes: &[7; 300],
    };
    assert_eq!(punted, expected);
    assert_eq!(rig.lane.close(), 0);
}

#[test]
fn a_packet_longer_than_a_message_is_shown_in_part() {
    let mut rig = rig(EachTurn(|turn: &mut Turn| {
        punt(turn, 3000, 1, |packet| packet.bytes_mut().fill(3));
    }));
    rig.lane.turn();
    let message = rig.slow.receiver.receive().unwrap().unwrap();
    let punted = Punted::read(message.body).unwrap();
    assert_eq!((punted.length, punted.bytes), (3000, &[3; 2000][..]));
    assert_eq!(rig.lane.close(), 0);
}

#[test]
fn a_lane_reads_and_does_not_sleep_before_it_has_read_all() {
    // The application reads one message each turn.
    let mut rig = rig(EachTurn(|turn: &mut Turn| {
        let Some(message) = turn.receive() else { return };
        let (kind, length) = (message.kind, message.body.len() as u64);
        assert!(turn.send_value(kind, &length));
    }));
    for kind in 0..3 {
        say(&mut rig.slow.sender, kind, &[0; 10]);
    }
    (0..3).for_each(|_| assert!(rig.lane.turn() > 0));
    assert_eq!(rig.lane.turn(), 0);
    assert_eq!(rig.count(LaneCounter::MessagesReceived), 3);
    assert_eq!(kinds(&mut rig.slow.receiver), [0, 1, 2]);

    // A value that no slow path writes: the lane no longer reads the ring.
    let into = SharedWords::new(&rig.memory, 3 * (64 + 512), 64).unwrap();
    into.store(16, u64::MAX);
    (0..3).for_each(|_| assert_eq!(rig.lane.turn(), 0));
    assert_eq!(rig.count(LaneCounter::MessagesRefused), 1);
    assert_eq!(rig.lane.close(), 0);
}

#[test]
fn a_turn_ends_however_much_the_slow_path_sends() {
    let (mut parts, _counters, _memory, mut slow) = parts();
    say(&mut slow.sender, 0, b"");
    let (most, mut received) = (u64::from(MAX_RECEIVED), vec![]);
    let app = EachTurn(|turn: &mut Turn| {
        let before = received.len();
        while let Some(message) = turn.receive() {
            assert_eq!(message.kind as usize, received.len(), "none is lost or comes twice");
            received.push(message.kind);
            say(&mut slow.sender, received.len() as u32, b"");
        }
        assert_eq!((received.len() - before) as u64, most);
    });
    parts.idle = Idle::Busy;
    let mut lane = Lane::new(app, parts);
    (0..3).for_each(|_| assert!(lane.turn() > 0, "the next follows at once"));
    assert_eq!(lane.close(), 0);
}

// The slow path sends, waits for the reply and sends again; the lane sleeps in between.
#[test]
fn a_message_wakes_a_lane_that_waits_for_interrupts() {
    const ROUNDS: u32 = 2000;
    let (parts, counters, _memory, mut slow) = parts();
    let stop = &AtomicBool::new(false);
    let answers = move || {
        let app = EachTurn(|turn: &mut Turn| {
            while let Some(message) = turn.receive() {
                let kind = message.kind;
                assert!(turn.send(kind, b"answer"));
            }
        });
        let mut lane = Lane::new(app, parts);
        let interrupts = lane.interrupts().unwrap();
        assert_eq!(interrupts.len(), 1);
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(0);
        epoll::add(&instance, interrupts[0], data, epoll::EventFlags::IN).unwrap();
        lane.wait_on(instance, Idle::Interrupt);
        lane.run(stop)
    };
    std::thread::scope(|scope| {
        let lane = scope.spawn(answers);
        for round in 0..ROUNDS {
            say(&mut slow.sender, round, b"question");
            let answer = loop {
                if let Some(message) = slow.receiver.receive().unwrap() {
                    break message.kind;
                }
                if slow.receiver.begin_wait() {
                    let bell = slow.receiver.doorbell();
                    let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
                    let polled = poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&timeout));
                    if polled != Ok(1) {
                        stop.store(true, Ordering::Relaxed);
                        panic!("no answer {round}");
                    }
                }
                slow.receiver.end_wait();
            };
            assert_eq!(answer, round);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(lane.join().unwrap(), 0);
    });
    let count = |counter| counters.lane(0).load(counter);
    assert_eq!(count(LaneCounter::MessagesReceived), u64::from(ROUNDS));
    assert!(count(LaneCounter::Sleeps) > 0, "the lane never slept");
}
