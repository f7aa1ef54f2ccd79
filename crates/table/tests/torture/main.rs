//! A writer process is killed at random points, many times, while four lanes read.
//!
//! The writer logs in shared memory each operation before and after it, so that the valid contents
//! after each kill are known. Then the next writer takes over. The lanes read all the time and hold
//! values until their turn ends.
//!
//! It kills 200 writers, or 10,000 with `FASTLANE_SOAK=1`.
#![allow(unsafe_code, reason = "guards: the lanes of this test publish their turns")]

mod lanes;
mod tables;
mod writer_process;

use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tables::{Random, Tables};

const LANES: usize = 4;

/// Writer process, killed when it is dropped, however the test ends.
struct Writer(Child);

impl Writer {
    fn start(tables: &Tables, seed: u64) -> io::Result<Self> {
        let files = tables.memories.each_ref().map(|memory| {
            // Without close-on-exec, so that the writer inherits it.
            rustix::io::dup(memory.as_fd()).unwrap()
        });
        let numbers = files.each_ref().map(|file| {
            use std::os::fd::AsRawFd;
            file.as_raw_fd().to_string()
        });
        let child = Command::new(std::env::current_exe()?)
            .args(["--ignored", "--exact", "writer_process", "--nocapture"])
            .env(writer_process::DESCRIPTORS, numbers.join(" "))
            .env(writer_process::SEED, seed.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Lets the writer work for a while, or in rare cases not even attach, and kills it.
    fn kill(mut self, tables: &Tables, random: &mut Random) {
        let enough = tables.log.load(writer_process::ALIVE) + random.below(60);
        let patience = Instant::now() + Duration::from_secs(60);
        while random.below(100) > 0 && tables.log.load_acquire(writer_process::ALIVE) < enough {
            let ended = self.0.try_wait().unwrap();
            assert!(ended.is_none(), "the writer ended by itself: {ended:?}");
            assert!(Instant::now() < patience, "the writer does nothing");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(random.below(1000)));
        let ended = self.0.try_wait().unwrap();
        assert!(ended.is_none(), "the writer ended by itself: {ended:?}");
        // Dropping it kills it.
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Guard that stops the lanes, however the test ends.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_killed_writer_leaves_all_or_nothing_of_each_change() {
    let soak = std::env::var_os("FASTLANE_SOAK").is_some_and(|value| value == "1");
    let kills = if soak { 10_000 } else { 200 };
    let tables = Tables::create();
    writer_process::fill(&tables);
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut random = Random(0x5EED);
    std::thread::scope(|scope| {
        let stop_them = StopOnDrop(&stop);
        for lane in 0..LANES {
            let (tables, stop, looks) = (&tables, &stop, &looks);
            scope.spawn(move || {
                let _stop_all = StopOnDrop(stop); // also when this lane fails
                lanes::run(tables, lane, stop, looks);
            });
        }
        scope.spawn(|| {
            let _stop_all = StopOnDrop(&stop);
            lanes::look_on(&tables, &stop);
        });
        for number in 0..kills {
            assert!(!stop.load(Ordering::Relaxed), "a lane has failed");
            Writer::start(&tables, number + 1).unwrap().kill(&tables, &mut random);
            writer_process::check_after_a_kill(&tables);
        }
        drop(stop_them);
    });
    let (steps, looks) = (tables.log.load(writer_process::ALIVE), looks.into_inner());
    println!("{kills} kills, {steps} changes, {looks} turns of lanes");
    assert!(steps > kills && looks > kills, "{steps} changes, {looks} turns");
}

#[test]
#[ignore = "the writer's process: the test above starts it"]
fn writer_process() {
    writer_process::run();
}
