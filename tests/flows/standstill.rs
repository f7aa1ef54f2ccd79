//! CPUs that stand still. A host may take a CPU of a virtual machine away for a while; what others
//! send to an interface that it polls meanwhile fills a queue of 256 packets within milliseconds.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use fastlane_tests::DropFlag;
use rustix::thread::gettid;

/// Time between two looks at the clock.
const STEP: Duration = Duration::from_millis(1);

/// Runs a function. Returns its result, and the longest time for which a CPU did not run a thread
/// that comes before all others.
#[track_caller]
pub(crate) fn longest<T>(body: impl FnOnce() -> T) -> (T, Duration) {
    let over = &AtomicBool::new(false);
    let cpus = available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let watches: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || watch(cpu, over))).collect();
        let end = DropFlag(over);
        let result = body();
        drop(end);
        let longest = watches.into_iter().map(|it| it.join().expect("it does not panic")).max();
        (result, longest.unwrap_or_default())
    })
}

/// Gives the calling thread a CPU with a priority before all ordinary ones.
fn take(cpu: usize, priority: &str) {
    let thread = gettid().as_raw_nonzero().to_string();
    for words in [["taskset", "-pc", &cpu.to_string()], ["chrt", "-fp", priority]] {
        let done = Command::new(words[0]).args(&words[1..]).arg(&thread).output();
        assert!(done.is_ok_and(|it| it.status.success()), "{words:?}");
    }
}

fn watch(cpu: usize, over: &AtomicBool) -> Duration {
    take(cpu, "50");
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        std::thread::sleep(STEP);
        longest = longest.max(begin.elapsed().saturating_sub(STEP));
    }
    longest
}

#[test]
fn a_cpu_that_is_taken_away_is_seen() {
    let taken = Duration::from_millis(40);
    let take_away = || {
        take(0, "60");
        std::thread::sleep(Duration::from_millis(100)); // until it is watched
        let begin = Instant::now();
        while begin.elapsed() < taken {}
    };
    let ((), found) = longest(|| std::thread::scope(|scope| drop(scope.spawn(take_away).join())));
    assert!(found >= taken / 2, "{found:?}");
}
