//! Threads of lanes: pinning, identifiers and CPU time.

use std::path::Path;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::Error;
use crate::config::plan::Plan;

/// Checks that this process may run on the CPU of each lane.
///
/// # Errors
/// Names the first lane whose CPU is not allowed.
pub(crate) fn check(plan: &Plan) -> Result<(), Error> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    for (lane, wanted) in plan.lanes.iter().enumerate() {
        let Some(cpu) = wanted.cpu else { continue };
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            let reason = format!(
                "this process may not use CPU {cpu}, only {}; change `lanes.cpus`",
                list(&allowed)
            );
            return Err(Error::Lane { lane, reason });
        }
    }
    Ok(())
}

/// Formats a set of CPUs as ranges: `0-3, 6`.
fn list(set: &CpuSet) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Pins the calling thread to `cpu` and sets its timer slack to 1 ns. Returns the CPU that it runs
/// on.
pub(crate) fn prepare(cpu: Option<usize>) -> u64 {
    if let (Some(cpu), Err(error)) = (cpu, pin(cpu)) {
        tracing::warn!("cannot pin a lane to CPU {cpu} ({error}); it runs unpinned");
    }
    // The default slack of 50 microseconds is longer than most sleeps of a lane (prctl(2)).
    let slack = std::num::NonZeroU64::new(1);
    let _ = rustix::thread::set_current_timer_slack(slack);
    sched_getcpu() as u64
}

/// Pins the calling thread to `cpu`, if there is one.
pub(crate) fn pin(cpu: Option<usize>) -> rustix::io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

/// Returns the kernel's ID of the calling thread.
pub(crate) fn thread_id() -> u64 {
    gettid().as_raw_nonzero().get().unsigned_abs().into()
}

/// Returns the seconds that a thread of the process at `process` (such as `/proc/self`) has run in
/// user and kernel mode (`schedstat`, Documentation/scheduler/sched-stats.rst). `None` if the
/// thread does not exist or the kernel does not count.
pub(crate) fn cpu_seconds(process: &Path, thread: u64) -> Option<f64> {
    let file = process.join(format!("task/{thread}/schedstat"));
    let text = std::fs::read_to_string(file).ok()?;
    let nanoseconds: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// Page faults of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageFaults {
    /// Faults that needed no device.
    pub(crate) minor: u64,
    /// Faults that waited for a device.
    pub(crate) major: u64,
}

/// Returns the page faults of a thread of this process since its start (proc(5), `stat`), or
/// `None` if the thread does not exist.
pub(crate) fn page_faults(thread: u64) -> Option<PageFaults> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name of the thread is in brackets and may contain anything. Behind it are the fields from
    // the third on: minflt is the 10th, majflt the 12th.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(7);
    let mut next = || fields.next()?.parse().ok();
    let minor = next()?;
    let _of_children: u64 = next()?;
    Some(PageFaults { minor, major: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_this_thread_grows_with_its_work() {
        let seconds = || cpu_seconds(Path::new("/proc/self"), thread_id()).unwrap();
        let before = seconds();
        let start = thread_clock();
        while thread_clock() - start < 0.05 {
            std::hint::spin_loop();
        }
        let used = seconds() - before;
        assert!(used > 0.0 && used < 10.0, "{used} s");
        assert_eq!(cpu_seconds(Path::new("/proc/self"), 0), None);
    }

    /// Returns the thread's own clock in seconds, so that the test does not depend on other load.
    fn thread_clock() -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    #[test]
    fn page_faults_of_this_thread_are_counted() {
        const PAGES: u64 = 512;
        let minor = || page_faults(thread_id()).unwrap().minor;
        let before = minor();
        // Zeroed memory of this size is mapped and not touched.
        let mut memory = vec![0_u8; PAGES as usize * 4096];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(1));
        // Large pages may take fewer faults.
        assert!((1..PAGES * 2).contains(&(minor() - before)));
        assert_eq!(page_faults(0), None);
    }

    #[test]
    fn cpus_are_listed_in_ranges() {
        let mut set = CpuSet::new();
        [0, 1, 2, 3, 6, 8, 9].into_iter().for_each(|cpu| set.set(cpu));
        assert_eq!(list(&set), "0-3, 6, 8-9");
        assert_eq!(list(&CpuSet::new()), "");
    }
}
