//! The CPU time of a thread, as the kernel tells it.

use std::path::Path;

/// Seconds that the thread `thread` of the process at `process` (such as `/proc/self`) has run, in
/// user and kernel mode (`schedstat`, Documentation/scheduler/sched-stats.rst). `None` when there
/// is no such thread, or the kernel does not count.
pub(crate) fn seconds(process: &Path, thread: u64) -> Option<f64> {
    let file = process.join(format!("task/{thread}/schedstat"));
    let text = std::fs::read_to_string(file).ok()?;
    let nanoseconds: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_this_thread_grows_with_its_work() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        let seconds = || seconds(Path::new("/proc/self"), thread).unwrap();
        let before = seconds();
        let start = thread_clock();
        while thread_clock() - start < 0.05 {
            std::hint::spin_loop();
        }
        let used = seconds() - before;
        assert!(used > 0.0 && used < 10.0, "{used} s");
        assert_eq!(super::seconds(Path::new("/proc/self"), 0), None);
    }

    /// The thread's own clock, so that the test does not depend on how busy the machine is.
    fn thread_clock() -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
}
