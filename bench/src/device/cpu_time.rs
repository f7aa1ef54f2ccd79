//! CPU affinity and priority of measuring threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::rivals::ffi;

/// Pins the calling thread to a CPU, if the machine lets it.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Not pinned is slower and noisier, but not wrong.
    let _ = sched_setaffinity(None, &set);
}

/// Runs `body` on a CPU, if the machine lets it; the thread may then go where it could before.
pub fn pinned<T>(cpu: usize, body: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None);
    pin(cpu);
    let result = body();
    if let Ok(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    result
}

/// Runs `body` while no ordinary program takes the CPU away, if the machine lets it. (Linux leaves
/// others 5 % of the time all the same.)
pub fn undisturbed<T>(body: impl FnOnce() -> T) -> T {
    let real_time = ffi::set_real_time(true).is_ok();
    let result = body();
    if real_time {
        let _ = ffi::set_real_time(false);
    }
    result
}
