//! The writer of a classifier is killed at random points, many times, while lanes look packets up.
//!
//! Each list has a version and one rule per address; the value of a rule is made from both. A lane
//! that sees a part of a list, or memory that is being written, finds a value that does not fit.
#![allow(unsafe_code, reason = "guards: the lanes of this test publish their turns")]

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use fastlane_table::counters::{Counters, FENCE_TURNS, LaneCounter};
use fastlane_table::{
    ClassifierReader, ClassifierWriter, FlowKey, FlowMatch, Guard, Prefix, Readers, RuleList,
    SharedMemory, SharedWords, Spec, TableError,
};

const RULES: u32 = 200;
const LANES: usize = 2;
const KILLS: u32 = 60;
/// Size of the application's form of a list, in bytes.
const SOURCE: usize = 1 << 20;
const DESCRIPTORS: &str = "FASTLANE_CLASSIFIER_DESCRIPTORS";

type Value = [u64; 2];

fn value(rule: u32, version: u64) -> Value {
    [version, version.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(rule)]
}

fn key(rule: u32) -> FlowKey<Ipv4Addr> {
    let (source, destination) = (Ipv4Addr::from_bits(rule << 8), Ipv4Addr::UNSPECIFIED);
    FlowKey { source, destination, source_port: 1, destination_port: 2, protocol: 6, tag: 0 }
}

fn replace(writer: &mut ClassifierWriter<Value>, version: u64) -> Result<(), TableError> {
    let rules: Vec<_> = (0..RULES)
        .map(|rule| {
            let source = Prefix::new(key(rule).source, 24).unwrap();
            (FlowMatch { source, ..FlowMatch::any() }, value(rule, version))
        })
        .collect();
    // So much that the writer is often killed, and lanes often look, while it writes a list.
    let mut source = vec![0; SOURCE];
    source[..8].copy_from_slice(&version.to_le_bytes());
    writer.replace(&RuleList { ipv4: &rules, ipv6: &[], source: &source }).map(|_| ())
}

fn attach(memory: &Arc<SharedMemory>, counters: &Counters) -> (ClassifierWriter<Value>, u64) {
    // SAFETY: the lanes of this test publish their turns there.
    let readers = Arc::new(unsafe { Readers::lanes(counters) });
    let writer = ClassifierWriter::attach(memory, &readers).unwrap();
    let version = u64::from_le_bytes(*writer.source().first_chunk().unwrap());
    (writer, version)
}

/// Looks up all rules, in bursts, until `stop`. Returns the newest version seen.
fn look(
    reader: &ClassifierReader<Value>,
    counters: &Counters,
    lane: usize,
    stop: &AtomicBool,
) -> u64 {
    let counters = counters.lane(lane);
    let keys: Vec<_> = (0..RULES).map(key).collect();
    let (mut turn, mut newest) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        // SAFETY: the turn number is published after the guard's borrow has ended.
        let guard = unsafe { Guard::new() };
        let mut found = vec![None; keys.len()];
        reader.lookup_many(&guard, &keys, &mut found);
        let version = found[0].unwrap()[0];
        assert!(version >= newest, "version {newest} was followed by {version}");
        newest = version;
        for (rule, found) in (0..).zip(&found) {
            assert_eq!(found.copied(), Some(value(rule, version)), "rule {rule}");
        }
        counters.publish(LaneCounter::Turn, turn);
        if turn % FENCE_TURNS == 0 {
            fence(Ordering::SeqCst);
        }
    }
    counters.publish(LaneCounter::Ended, 1);
    newest
}

/// Process that is killed when it is dropped.
struct Writer(Child);

impl Writer {
    fn start(memory: &Arc<SharedMemory>, counters: &Counters, log: &SharedMemory) -> Self {
        let files = [memory.as_fd(), counters.memory().as_fd(), log.as_fd()];
        // Without close-on-exec, so that the writer inherits them.
        let files = files.map(|file| rustix::io::dup(file).unwrap());
        let numbers = files.each_ref().map(|file| file.as_raw_fd().to_string()).join(" ");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "writer_process", "--nocapture"])
            .env(DESCRIPTORS, numbers)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops the lanes, however the test ends.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_killed_writer_leaves_the_old_list_or_the_new_one() {
    let memory =
        Spec::classifier::<Value>("survival", RULES as usize).with_groups(2048).create().unwrap();
    let counters = Counters::create(LANES, 0).unwrap();
    // SAFETY: no lane reads yet.
    let none = Arc::new(unsafe { Readers::none() });
    replace(&mut ClassifierWriter::attach(&memory, &none).unwrap(), 1).unwrap();
    // The newest version that a writer has published.
    let log = Arc::new(SharedMemory::create("log", 4096).unwrap());
    let newest = SharedWords::new(&log, 0, 1).unwrap();
    let stop = AtomicBool::new(false);
    let mut last = 1;
    std::thread::scope(|scope| {
        let stop_lanes = StopOnDrop(&stop);
        let lanes: [_; LANES] = std::array::from_fn(|lane| {
            let (memory, counters, stop) = (&memory, &counters, &stop);
            let reader = ClassifierReader::attach(memory).unwrap();
            scope.spawn(move || {
                let _stop_all = StopOnDrop(stop); // also when this lane fails
                look(&reader, counters, lane, stop)
            })
        });
        for kill in 0..KILLS {
            let writer = Writer::start(&memory, &counters, &log);
            let patience = Instant::now() + Duration::from_secs(60);
            // Some are killed before their first list, others after some of them.
            let wanted = last + u64::from(kill % 4);
            while kill % 8 > 0 && newest.load(0) <= wanted {
                assert!(!stop.load(Ordering::Relaxed), "a lane has failed");
                assert!(Instant::now() < patience, "the writer does nothing");
                std::thread::sleep(Duration::from_micros(50));
            }
            std::thread::sleep(Duration::from_micros(u64::from(kill * 379 % 2000)));
            drop(writer);
            let (mut writer, version) = attach(&memory, &counters);
            assert!(version >= last, "version {last} was followed by {version}");
            last = version + 1;
            replace(&mut writer, last).unwrap();
        }
        drop(stop_lanes);
        assert!(lanes.into_iter().all(|lane| lane.join().unwrap() <= last));
    });
    println!("{KILLS} kills, {last} lists");
    assert!(last > u64::from(KILLS));
}

#[test]
#[ignore = "the writer's process: the test above starts it"]
fn writer_process() {
    let numbers = std::env::var(DESCRIPTORS).unwrap();
    let mut files = numbers.split(' ').map(|number| {
        // SAFETY: the parent made the descriptors for this process, and nobody else has them.
        unsafe { OwnedFd::from_raw_fd(number.parse().unwrap()) }
    });
    let mut file = || files.next().unwrap();
    let memory = Arc::new(SharedMemory::attach_writable(file()).unwrap());
    let counters = Counters::attach(SharedMemory::attach_read_only(file()).unwrap()).unwrap();
    let log = Arc::new(SharedMemory::attach_writable(file()).unwrap());
    let log = SharedWords::new(&log, 0, 1).unwrap();
    let (mut writer, mut version) = attach(&memory, &counters);
    loop {
        match replace(&mut writer, version + 1) {
            Ok(()) => {
                version += 1;
                log.store_release(0, version);
            }
            Err(TableError::Stalled { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
