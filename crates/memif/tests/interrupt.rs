//! Interrupts: lanes that sleep until a peer rings the doorbell.

mod support;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::{Idle, Lane, LaneConfig, Packet, Port, PortId, Queue, Verdict};
use fastlane_memif::{MemifSettings, Role};
use fastlane_table::counters::Counters;
use fastlane_testing::{Peer, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use support::{End, directory, other, settings, until};

/// Timeouts for an interrupt that must come, however slow the machine is, and for one that must
/// not; in milliseconds.
const MUST_COME: i64 = 10_000;
const MUST_NOT_COME: i64 = 5;

/// Returns true if the queue's interrupt arrives within the timeout.
fn is_interrupted(end: &End, milliseconds: i64) -> bool {
    let interrupt = end.queues[0].interrupt().expect("an interrupt");
    let timeout =
        Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(&interrupt, PollFlags::IN)], Some(&timeout)).expect("poll") == 1
}

#[test]
fn who_sleeps_is_woken_once_for_what_comes() {
    for role in [Role::Server, Role::Client] {
        let directory = directory();
        let mut sleeper = End::open(settings(&directory, role));
        let file = sleeper.queues[0].interrupt().unwrap().as_raw_fd();
        let mut peer = End::open(settings(&directory, other(role)));
        sleeper.connect();
        peer.connect();
        // The event of the connection itself is consumed by one wait.
        sleeper.queues[0].arm();
        sleeper.look();
        for round in 0..20 {
            assert!(peer.send(&[round; 60]), "a polled ring needs no doorbell");
            assert!(!is_interrupted(&sleeper, MUST_NOT_COME), "round {round}");
            assert_eq!(sleeper.receive(Duration::from_secs(5)), Some(vec![round; 60]));
            assert!(!sleeper.queues[0].arm(), "nothing is there");
            assert!(!is_interrupted(&sleeper, MUST_NOT_COME), "nothing was sent");
            assert!(peer.send(&[round; 61]));
            assert!(is_interrupted(&sleeper, MUST_COME), "round {round}: no interrupt");
            assert_eq!(sleeper.receive(Duration::from_secs(5)), Some(vec![round; 61]));
            assert!(peer.send(&[round; 62]));
            assert!(sleeper.queues[0].arm(), "something is there: no sleep");
            assert_eq!(sleeper.receive(Duration::from_secs(5)), Some(vec![round; 62]));
        }
        assert_eq!(sleeper.queues[0].interrupt().unwrap().as_raw_fd(), file);
    }
}

#[test]
fn who_sleeps_without_a_peer_is_woken_by_the_next() {
    for role in [Role::Server, Role::Client] {
        let directory = directory();
        let mut sleeper = End::open(settings(&directory, role));
        for round in 0..5 {
            assert!(!sleeper.queues[0].arm(), "round {round}: there is no peer");
            assert!(!is_interrupted(&sleeper, MUST_NOT_COME), "round {round}");
            let mut peer = End::open(settings(&directory, other(role)));
            assert!(is_interrupted(&sleeper, MUST_COME), "no interrupt for the new peer");
            sleeper.connect();
            peer.connect();
            sleeper.queues[0].arm();
            sleeper.look();
            sleeper.queues[0].arm();
            drop(peer);
            assert!(
                is_interrupted(&sleeper, MUST_COME),
                "no interrupt for the end of the connection"
            );
            until("the end of it", || !sleeper.link.state().connected);
            sleeper.look();
        }
    }
}

/// Lets both ends sleep between frames. No wake-up may be lost: a wait that times out is a failure.
#[test]
fn no_wakeup_is_lost() {
    const FRAMES: u32 = 20_000;
    let directory = directory();
    let mut sleeper = End::open(settings(&directory, Role::Server));
    let mut peer = End::open(settings(&directory, Role::Client));
    sleeper.connect();
    peer.connect();
    let sender = std::thread::spawn(move || {
        for number in 0..FRAMES {
            let mut frame = [0; 60];
            frame[..4].copy_from_slice(&number.to_be_bytes());
            while !peer.send(&frame) {
                std::thread::yield_now();
            }
            if number % 7 == 0 {
                std::thread::sleep(Duration::from_micros(u64::from(number % 50)));
            }
        }
        peer
    });
    let (mut expected, began) = (0, Instant::now());
    while expected < FRAMES {
        while let Some(frame) = sleeper.receive(Duration::ZERO) {
            assert_eq!(frame[..4], expected.to_be_bytes());
            expected += 1;
        }
        if expected < FRAMES && !sleeper.queues[0].arm() {
            assert!(is_interrupted(&sleeper, MUST_COME), "asleep for ever at {expected}");
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    drop(sender.join().unwrap());
}

/// Checks that a lane in interrupt mode answers each frame long before its own timeout, and serves
/// peers that reconnect.
#[test]
fn a_lane_that_sleeps_answers_at_once() {
    let directory = directory();
    let (link, mut queues) =
        fastlane_memif::open(settings(&directory, Role::Server), PortId(0)).expect("a port");
    let counters = Counters::create(1, 1).expect("memory for counters");
    let queues: Vec<Box<dyn Queue>> = vec![Box::new(queues.remove(0))];
    let port = Port { queues, kernel: None, filter: None, counters: counters.port(0, 0) };
    let pool = Spec::default().pool();
    let parts = LaneConfig::new(pool, vec![port], counters.lane(0));
    let parts = LaneConfig { idle: Idle::Interrupt, ..parts };
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut lane = Lane::new(|_: &mut Packet| Verdict::Reflect, parts);
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
        for interrupt in lane.interrupts().expect("every queue has one") {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&instance, interrupt, data, epoll::EventFlags::IN).expect("watching it");
        }
        lane.wait_on(instance, Idle::Interrupt);
        lane.run(&theirs)
    });
    let mut times = Vec::new();
    for _ in 0..4 {
        let mut peer = End::open(settings(&directory, Role::Client));
        peer.connect();
        for number in 0..25u8 {
            std::thread::sleep(Duration::from_millis(2));
            let sent = Instant::now();
            assert!(peer.send(&[number; 60]));
            assert_eq!(peer.receive(Duration::from_secs(10)), Some(vec![number; 60]));
            times.push(sent.elapsed());
        }
        drop(peer);
        until("the end of it", || !link.state().connected);
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(thread.join().expect("the lane"), 0, "frames that did not come back");
    times.sort_unstable();
    // Without a wake-up a lane polls after 100 ms.
    assert!(times[times.len() / 2] < Duration::from_millis(20), "{times:?}");
}

#[test]
fn without_interrupts_there_are_none() {
    let directory = directory();
    let end = End::open(MemifSettings { interrupt: false, ..settings(&directory, Role::Server) });
    assert!(end.queues[0].interrupt().is_none());
}
