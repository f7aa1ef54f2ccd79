//! Hot restart: processes are killed at any instruction, and successors adopt their queues.

mod support;

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_af_xdp::{Mode, OpenedQueue, Settings};
use fastlane_core::{Burst, Pool, Queue};
use fastlane_testing::namespace::{Wire, veth};
use fastlane_testing::{Peer, all_losses};
use support::handover::Handover;
use support::{device, echo, fd_passing, in_namespace, open, pool, send_all, settings, wire};

/// Set for the processes that are killed; its value is the mode.
const LIFE: &str = "FASTLANE_AF_XDP_LIFE";
const FRAMES: usize = 2048;
const QUEUES: u32 = 2;
const RING: u32 = 512;
const BURST: usize = 32;

/// Returns the number of processes to kill.
fn lives() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 200 } else { 20 }
}

fn ours(mode: Mode) -> Settings {
    Settings { receive_ring: RING, transmit_ring: RING, ..settings("ours", mode) }
}

/// Returns a datagram that carries a number and belongs to a flow of its own.
fn numbered(number: u32) -> Vec<u8> {
    let mut frame = support::datagram(number as u16);
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> Option<u32> {
    let is_ours = frame.get(12..14)? == [8, 0] && frame.get(23)? == &17;
    is_ours.then(|| u32::from_be_bytes(*frame[42..].first_chunk().expect("60 octets")))
}

/// Asserts that the frames in flight and the free frames are all frames of the pool.
fn assert_nothing_missing(pool: &Pool, opened: &[OpenedQueue]) {
    let share = (FRAMES / 2 / opened.len()).min(RING as usize);
    assert_eq!(pool.free(), FRAMES - share * opened.len(), "frames are lost or made");
}

/// Echoes for `time`.
fn run(pool: &mut Pool, opened: &mut [OpenedQueue], time: Duration) {
    let (mut burst, start) = (Burst::new(BURST), Instant::now());
    while start.elapsed() < time {
        for one in opened.iter_mut() {
            echo(&mut one.handle, &mut burst, pool);
        }
    }
}

/// Echoes until the process is killed. Pauses between receive and transmit, so that it holds frames
/// most of the time; with system calls alone that would be rare.
fn run_until_killed(pool: &mut Pool, opened: &mut [OpenedQueue]) -> ! {
    let mut burst = Burst::new(BURST);
    let linger = || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
    };
    loop {
        for one in opened.iter_mut() {
            one.handle.receive(&mut burst, pool);
            linger();
            send_all(&mut one.handle, &mut burst, pool);
            linger();
            one.handle.flush(pool);
        }
    }
}

/// Runs as the process that will be killed. Its standard input is connected to the holder of the
/// handover, which sends nothing usable to the first process, and the handover to the others.
#[test]
fn a_life() {
    let Ok(mode) = std::env::var(LIFE) else { return }; // it is not that process
    let mode = if mode == "native" { Mode::NativeCopy } else { Mode::GenericCopy };
    let keeper = std::io::stdin();
    let (octets, descriptors) = fd_passing::receive(&keeper);
    let (_device, mut pool, mut opened) = if descriptors.is_empty() {
        let mut device = device(ours(mode));
        let mut pool = pool(FRAMES);
        let opened = open(&mut pool, &mut device, (0..QUEUES).collect());
        let kept = Handover::of(&pool, &device, &opened);
        fd_passing::send(&keeper, &kept.octets(), &kept.borrowed());
        (device, pool, opened)
    } else {
        let kept = Handover::from_parts(&octets, descriptors);
        let adopted = kept.adopt(ours(mode));
        let outcome = adopted.as_ref().map_or_else(|error| error.to_string(), |_| "adopted".into());
        fd_passing::send(&keeper, outcome.as_bytes(), &[]);
        adopted.expect("the queues are adopted")
    };
    // Frames that an application holds when it is killed; the successor must find them free.
    (0..50).for_each(|_| drop(pool.take()));
    run_until_killed(&mut pool, &mut opened);
}

/// Starts a process; it adopts the handover if there is one.
fn start(mode: &str, kept: Option<&Handover>) -> (Child, OwnedFd) {
    let (ours, theirs) = fd_passing::pair();
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_life", "--nocapture", "--test-threads=1"])
        .env(LIFE, mode)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    match kept {
        Some(kept) => fd_passing::send(&ours, &kept.octets(), &kept.borrowed()),
        None => fd_passing::send(&ours, b"open", &[]),
    }
    (child, ours)
}

/// Frames counted by the peer.
#[derive(Debug, Default)]
struct PeerCounts {
    sent: u32,
    back: HashSet<u32>,
    twice: u32,
}

/// Sends `at_once` frames per pause until `stop`, and counts the frames that come back until 300 ms
/// after the last one.
fn traffic(peer: &mut Wire, stop: &AtomicBool, count: &AtomicU32, at_once: u32) -> PeerCounts {
    let mut seen = PeerCounts::default();
    let mut quiet_since = Instant::now();
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        if !stopped {
            (0..at_once).for_each(|_| seen.sent += u32::from(peer.send(&numbered(seen.sent))));
            std::thread::sleep(Duration::from_micros(200));
        }
        while let Some(frame) = peer.receive(Duration::ZERO) {
            let Some(number) = number(&frame) else { continue };
            seen.twice += u32::from(!seen.back.insert(number));
            quiet_since = Instant::now();
        }
        count.store(seen.back.len() as u32, Ordering::Relaxed);
        if stopped && quiet_since.elapsed() > Duration::from_millis(300) {
            return seen;
        }
    }
}

/// Returns the number of frames that the veth interfaces dropped on transmit (proc(5)).
fn dropped_by_the_interfaces() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").expect("a table");
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let veth = lines.filter(|(name, _)| ["ours", "peer"].contains(&name.trim()));
    let number = |words: &str, column| -> u64 {
        let word = words.split_ascii_whitespace().nth(column).expect("sixteen numbers");
        word.parse().expect("a number")
    };
    veth.map(|(_, words)| number(words, 11)).sum()
}

/// Formats the median and the maximum, in milliseconds.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort();
    let (middle, most) = (times[times.len() / 2], times[times.len() - 1]);
    format!("{:.1} ms, at most {:.1} ms", middle.as_secs_f64() * 1e3, most.as_secs_f64() * 1e3)
}

/// Guard that ends the traffic even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills one process after the other, each adopting from the last. Returns the peer's counts, and
/// the number of frames that the kernel dropped for lack of space.
fn kill_one_after_the_other(mode: &'static str, at_once: u32) -> (PeerCounts, u64) {
    veth("ours", "peer", QUEUES as usize);
    let mut peer = wire("peer");
    let (mut child, socket) = start(mode, None);
    let (octets, descriptors) = fd_passing::receive(&socket);
    assert!(descriptors.len() == 5 + QUEUES as usize, "the first process failed");
    let kept = Handover::from_parts(&octets, descriptors);
    let (stop, count) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut random = 1_u64;
    let mut gaps = Vec::new();
    std::thread::scope(|scope| {
        let (stop, count) = (&stop, &count);
        let sender = scope.spawn(move || traffic(&mut peer, stop, count, at_once));
        let _stopped = StopOnDrop(stop);
        for life in 1..=lives() {
            let before = count.load(Ordering::Relaxed);
            let start_of_life = Instant::now();
            while count.load(Ordering::Relaxed) == before {
                assert!(
                    start_of_life.elapsed() < Duration::from_secs(5),
                    "life {life}: no traffic"
                );
                std::thread::sleep(Duration::from_micros(100));
            }
            // A random delay, so that the kill also hits the burst of frames after an adoption.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_micros(random >> 33 & 0x1fff));
            let killed = Instant::now();
            child.kill().expect("SIGKILL");
            child.wait().expect("its end");
            if life < lives() {
                let socket;
                (child, socket) = start(mode, Some(&kept));
                let (outcome, _) = fd_passing::receive(&socket);
                assert_eq!(String::from_utf8_lossy(&outcome), "adopted", "life {life}");
            } else {
                let settings = ours(Mode::Auto);
                let (_device, mut pool, mut opened) = kept.adopt(settings).expect("the last");
                run(&mut pool, &mut opened, Duration::from_millis(50));
                stop.store(true, Ordering::Relaxed);
                run(&mut pool, &mut opened, Duration::from_millis(500));
                assert_nothing_missing(&pool, &opened);
                let lost = opened.iter_mut().map(|one| {
                    let losses = all_losses(&one.handle);
                    assert_eq!((losses.device_invalid, losses.transmit_error), (0, 0));
                    losses.no_frame + losses.device_full
                });
                let lost = lost.sum::<u64>() + dropped_by_the_interfaces();
                opened.iter_mut().for_each(|one| one.handle.close(&mut pool));
                assert_eq!(pool.missing(), 0);
                let gaps = summary(gaps);
                let seen = sender.join().expect("the sender ends");
                let words = format!(
                    "{mode}: {} kills, {} frames sent, {} not back, {lost} of them dropped by the \
                     kernel; from a kill until the successor runs {gaps}",
                    lives(),
                    seen.sent,
                    seen.sent as usize - seen.back.len(),
                );
                writeln!(std::io::stdout(), "{words}").expect("output");
                return (seen, lost);
            }
            gaps.push(killed.elapsed());
        }
        unreachable!("the last life ends it")
    })
}

fn assert_only_what_was_held_is_lost(mode: &'static str, at_once: u32) {
    let (seen, dropped) = kill_one_after_the_other(mode, at_once);
    assert_eq!(seen.twice, 0, "frames were received twice");
    let lost = seen.sent as usize - seen.back.len();
    // Each kill may lose one burst: taken from the receive ring, not yet in the transmit ring.
    let held = BURST * lives() as usize;
    assert!(lost <= held + dropped as usize, "{lost} lost, {dropped} dropped by the kernel");
}

#[test]
fn what_a_killed_process_did_not_hold_is_not_lost() {
    in_namespace("what_a_killed_process_did_not_hold_is_not_lost", || {
        assert_only_what_was_held_is_lost("native", 4);
    });
}

#[test]
fn processes_are_killed_under_a_flood_and_no_frame_is_missing() {
    for mode in ["native", "generic"] {
        in_namespace("processes_are_killed_under_a_flood", move || {
            assert_only_what_was_held_is_lost(mode, 400);
        });
    }
}
