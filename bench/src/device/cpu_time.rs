//! CPU affinity and scheduling policy of measuring threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::rivals::ffi;

/// Pins the calling thread to `cpu`, if the kernel permits it.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // An unpinned run is slower and noisier, but still correct.
    let _ = sched_setaffinity(None, &set);
}

/// Returns the first CPU, among those of this process, that shares no core with `cpu`: what runs on
/// the other thread of a core takes half of it. If all do, returns the CPU after `cpu`.
#[must_use]
pub fn other_core(cpu: usize) -> usize {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let shared = cpus(&std::fs::read_to_string(file).unwrap_or_default());
    let Ok(permitted) = sched_getaffinity(None) else { return cpu + 1 };
    let is_other = |one: &usize| permitted.is_set(*one) && *one != cpu && !shared.contains(one);
    (0..CpuSet::MAX_CPU).find(is_other).unwrap_or(cpu + 1)
}

/// Returns the CPUs of a list of the kernel, such as `0,8` or `0-1`.
fn cpus(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Runs `body` on `cpu`, if the kernel permits it, and restores the affinity of the thread.
pub fn pinned<T>(cpu: usize, body: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None);
    pin(cpu);
    let result = body();
    if let Ok(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    result
}

/// Runs `body` with real-time priority, if the kernel permits it, so that no ordinary program takes
/// the CPU away. Linux still leaves 5 % of the time to others.
pub fn undisturbed<T>(body: impl FnOnce() -> T) -> T {
    let real_time = ffi::set_real_time(true).is_ok();
    let result = body();
    if real_time {
        let _ = ffi::set_real_time(false);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_have_numbers_and_ranges() {
        assert_eq!(cpus("0,8\n"), [0, 8]);
        assert_eq!(cpus("0-2,5"), [0, 1, 2, 5]);
        assert!(cpus("").is_empty());
    }
}
