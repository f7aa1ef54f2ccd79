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
