use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::SharedWords;

const CAPACITY: usize = 4096;

struct Ends {
    memory: Arc<SharedMemory>,
    bells: Doorbells,
    lane: Channel,
    slow: Channel,
}

fn clone(bells: &Doorbells) -> Doorbells {
    Doorbells { lane: bells.lane.try_clone().unwrap(), slow: bells.slow.try_clone().unwrap() }
}

/// Creates the rings of two lanes and returns both ends of lane 1.
fn ends(capacity: usize) -> Ends {
    let memory = Arc::new(SharedMemory::create("messages-test", size(2, capacity)).unwrap());
    let bells = Doorbells { lane: Doorbell::create().unwrap(), slow: Doorbell::create().unwrap() };
    assert!(Channel::create(&memory, 0, capacity, clone(&bells)).is_ok());
    let lane = Channel::create(&memory, 1, capacity, clone(&bells)).unwrap();
    let slow = Channel::attach_slow(&memory, 1, clone(&bells)).unwrap();
    bells.lane.drain();
    Ends { memory, bells, lane, slow }
}

fn all(receiver: &mut Receiver) -> Vec<(u32, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some(message) = receiver.receive().unwrap() {
        messages.push((message.kind, message.body.to_vec()));
    }
    messages
}

fn rings_within(bell: &Doorbell, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

fn one_way(sender: &mut Sender, receiver: &mut Receiver) {
    let bodies = [&b""[..], b"a", b"12345678", b"123456789", &[7; 1000]];
    for (kind, body) in bodies.into_iter().enumerate() {
        assert!(sender.send(kind as u32, body));
    }
    assert_eq!(all(receiver), []);
    sender.publish();
    let sent = bodies.iter().enumerate().map(|(kind, body)| (kind as u32, body.to_vec()));
    assert_eq!(all(receiver), sent.collect::<Vec<_>>());
    assert_eq!(all(receiver), []);
}

#[test]
fn messages_go_both_ways_once_published() {
    let Ends { mut lane, mut slow, .. } = ends(CAPACITY);
    for _ in 0..10 {
        one_way(&mut lane.sender, &mut slow.receiver);
        one_way(&mut slow.sender, &mut lane.receiver);
    }
}

#[test]
fn a_message_lies_in_memory_as_the_documentation_says() {
    let Ends { memory, mut lane, .. } = ends(CAPACITY);
    let bytes = [0xa1, 0xa2, 0xa3];
    let punted = Punted {
        time: 0x1122_3344_5566_7788,
        length: 1500,
        reason: 0xdead_beef,
        port: 0x0102,
        lane: 0x0304,
        is_from_kernel: true,
        partial_checksum: Some((34, 16)),
        bytes: &bytes,
    };
    assert!(lane.sender.send(5, b"abcdefghij"));
    assert!(lane.sender.send_with_header(PUNT, &punted.header(), &bytes));
    lane.sender.publish();
    // Ring 2 of four: each has 64 words before 512 of data.
    let ring = SharedWords::new(&memory, 2 * (64 + 512), 64 + 512).unwrap();
    let native = u64::from_ne_bytes;
    let expected = [
        4 | 1 << 32,
        5 | 10 << 32,
        native(*b"abcdefgh"),
        native(*b"ij\0\0\0\0\0\0"),
        7 | 1 << 32,
        u64::from(u32::MAX) | 35 << 32,
        0x1122_3344_5566_7788,
        1500 | 3 << 32,
        0x0304_0102_dead_beef,
        3 | 34 << 16 | 16 << 32,
        native([0xa1, 0xa2, 0xa3, 0, 0, 0, 0, 0]),
    ];
    let words: Vec<_> = (64..64 + expected.len()).map(|word| ring.load(word)).collect();
    assert_eq!(words, expected);
    assert_eq!((ring.load(1), ring.load(16), ring.load(32)), (512, expected.len() as u64, 0));
}

#[test]
fn a_body_is_a_value_of_its_length() {
    let (seven, bools, others) = (7_u64.to_ne_bytes(), [1, 0], [1, 2]);
    let [seven, bools, others] =
        [&seven[..], &bools, &others].map(|body| Message { kind: 1, body });
    assert_eq!(seven.value(), Some(7_u64));
    assert_eq!(seven.value::<u32>(), None);
    assert_eq!(bools.value(), Some([true, false]));
    assert_eq!(others.value::<[bool; 2]>(), None);
}

proptest! {
    #[test]
    fn a_punted_packet_is_read_as_it_was_written(
        (time, length, reason) in any::<(u64, u32, u32)>(),
        (port, lane, is_from_kernel) in any::<(u16, u16, bool)>(),
        partial_checksum in any::<Option<(u16, u16)>>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..100), cut in 0_usize..140,
    ) {
        let length = length.max(bytes.len() as u32);
        let bytes = &bytes[..];
        let punted =
            Punted { time, length, reason, port, lane, is_from_kernel, partial_checksum, bytes };
        let mut body = punted.header().map(u64::to_ne_bytes).concat();
        body.extend(bytes);
        prop_assert_eq!(Punted::read(&body), Some(punted));
        prop_assert!(cut >= body.len() || Punted::read(&body[..cut]).is_none());
    }
}

#[test]
fn what_is_too_long_or_finds_no_room_is_lost_and_counted() {
    let Ends { mut lane, mut slow, .. } = ends(CAPACITY);
    let longest = lane.sender.max_body();
    assert_eq!(longest, 2032);
    assert!(!lane.sender.send(1, &vec![0; longest + 1]));
    // A message of maximum length fits into an empty ring at any position.
    for _ in 0..300 {
        assert!(lane.sender.send(2, &[1]) && lane.sender.send(3, &vec![5; longest]));
        assert!(!lane.sender.send(4, &vec![6; longest]));
        lane.sender.publish();
        assert_eq!(all(&mut slow.receiver), [(2, vec![1]), (3, vec![5; longest])]);
    }
    assert_eq!(slow.receiver.lost(), 301);
    let Ends { lane, .. } = ends(1 << 20);
    assert_eq!(lane.sender.max_body(), MAX_BODY);
}

#[test]
fn a_successor_goes_on_where_the_one_before_it_was() {
    let Ends { memory, bells, mut lane, mut slow } = ends(CAPACITY);
    let send = |channel: &mut Channel, kinds: std::ops::Range<u32>| {
        kinds.for_each(|kind| assert!(channel.sender.send(kind, &kind.to_ne_bytes())));
    };
    let kinds = |receiver: &mut Receiver| -> Vec<u32> {
        all(receiver).into_iter().map(|(kind, _)| kind).collect()
    };
    for round in 0..200 {
        // The lane sends ten; the slow path takes three and dies, its successor receives the
        // others.
        send(&mut lane, 0..10);
        lane.sender.publish();
        (0..3).for_each(|kind| assert_eq!(slow.receiver.receive().unwrap().unwrap().kind, kind));
        // The dead slow path had published two messages, but not two more, which its successor
        // overwrites.
        send(&mut slow, 20..22);
        slow.sender.publish();
        send(&mut slow, 22..24);
        slow = Channel::attach_slow(&memory, 1, clone(&bells)).unwrap();
        assert!(bells.lane.drain(), "the one before may not have come to it");
        send(&mut lane, 10..12);
        lane.sender.publish();
        assert_eq!(kinds(&mut slow.receiver), (3..12).collect::<Vec<_>>());
        send(&mut slow, 24..26);
        slow.sender.publish();
        assert_eq!(lane.receiver.receive().unwrap().unwrap().kind, 20);
        // Now the lane dies too.
        send(&mut lane, 30..33);
        if round % 2 == 0 {
            lane = Channel::attach_lane(&memory, 1, clone(&bells)).unwrap();
            assert!(bells.slow.drain());
        } else {
            lane.sender.publish();
            assert_eq!(kinds(&mut slow.receiver), [30, 31, 32]);
        }
        assert_eq!(kinds(&mut lane.receiver), [21, 24, 25]);
        assert_eq!(kinds(&mut slow.receiver), []);
    }
}

#[test]
fn a_sleeper_is_rung_for_once_and_nobody_else() {
    let Ends { bells, mut lane, mut slow, memory } = ends(CAPACITY);
    let mut say = |kind| {
        assert!(lane.sender.send(kind, b""));
        lane.sender.publish();
    };
    say(1);
    assert!(!bells.slow.drain(), "it does not wait");
    assert!(!slow.receiver.begin_wait(), "there is something");
    assert!(slow.receiver.begin_wait(), "which it has seen and left");
    say(2);
    say(3);
    assert!(rings_within(&bells.slow, 0) && bells.slow.drain());
    say(4);
    assert!(!bells.slow.drain(), "rung for already");
    slow.receiver.end_wait();
    assert!(!slow.receiver.begin_wait());
    assert_eq!(all(&mut slow.receiver).len(), 4);
    assert!(slow.receiver.begin_wait());
    say(5);
    slow.receiver.end_wait();
    assert!(!bells.slow.drain(), "whoever woke has drained it");
    assert!(!slow.receiver.begin_wait() && slow.receiver.begin_wait());
    // It dies while it waits; its successor is awake.
    slow = Channel::attach_slow(&memory, 1, clone(&bells)).unwrap();
    say(6);
    assert!(!bells.slow.drain());
    assert_eq!(all(&mut slow.receiver).len(), 2);
}

#[test]
fn a_ring_that_holds_no_messages_is_left_alone() {
    let Ends { memory, mut lane, mut slow, .. } = ends(1 << 20);
    let into = SharedWords::new(&memory, 3 * (64 + (1 << 17)), 64 + (1 << 17)).unwrap();
    assert!(slow.sender.send(1, b"good"));
    slow.sender.publish();
    assert_eq!(lane.receiver.receive().unwrap().unwrap().kind, 1);
    // Longer than a message, but inside the ring.
    into.store(16, into.load(16) + 10_000);
    into.store(64 + 3, 10_000 | 1 << 32);
    assert_eq!(lane.receiver.receive(), Err(Inconsistent));
    assert_eq!(lane.receiver.receive(), Ok(None));
    assert!(lane.receiver.begin_wait(), "nothing comes from there any more");
    assert!(lane.receiver.record.capacity() <= 8 * MAX_WORDS, "it has allocated nothing");

    // A body longer than its record, and a record without a message.
    for words in [[2 | 1 << 32, 9 << 32], [1 | 1 << 32, 0]] {
        let Ends { memory, mut slow, .. } = ends(CAPACITY);
        let out = SharedWords::new(&memory, 2 * (64 + 512), 64 + 512).unwrap();
        (0..2).for_each(|word| out.store(64 + word, words[word]));
        out.store(16, words[0] & 0xff);
        assert_eq!(slow.receiver.receive(), Err(Inconsistent));
        assert_eq!(slow.receiver.receive(), Ok(None));
    }
}

/// Checks that no side sleeps forever. Both wait whenever they can, so a lost wake-up leaves both
/// asleep.
#[test]
fn no_wake_up_is_lost() {
    let rounds: u32 = if std::env::var_os("FASTLANE_SOAK").is_some() { 5_000_000 } else { 100_000 };
    let Ends { lane, slow, .. } = ends(CAPACITY);
    let failed = AtomicBool::new(false);
    let play = |mut channel: Channel, begins: bool| {
        let (mut next, mut slept) = (0_u32, 0_u64);
        if begins {
            assert!(channel.sender.send(next, b""));
            channel.sender.publish();
        }
        while next < rounds && !failed.load(Ordering::Relaxed) {
            match channel.receiver.receive().unwrap().map(|message| message.kind) {
                Some(kind) => {
                    assert_eq!(kind, next);
                    next += 1;
                    assert!(channel.sender.send(if begins { next } else { kind }, b""));
                    channel.sender.publish();
                }
                None => {
                    if channel.receiver.begin_wait() {
                        slept += 1;
                        if !rings_within(channel.receiver.doorbell(), 20) {
                            failed.store(true, Ordering::Relaxed);
                        }
                    }
                    channel.receiver.end_wait();
                }
            }
        }
        slept
    };
    let slept = std::thread::scope(|scope| {
        let lane = scope.spawn(|| play(lane, true));
        play(slow, false) + lane.join().unwrap()
    });
    assert!(!failed.load(Ordering::Relaxed), "both sleep, and one has sent");
    assert!(slept > 0, "nobody ever waited");
}
