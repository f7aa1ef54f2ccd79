//! Fuzzes memif rings: a peer that writes arbitrary data into the shared memory.
#![no_main]

use std::sync::{LazyLock, Mutex};

use fastlane_core::Pool;
use fastlane_table::SharedMemory;

/// Pool shared by all inputs, because a process can create 65,534 of them at most.
static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(|| {
    let memory = SharedMemory::create("fuzz", 16 * 2048).expect("memory");
    Mutex::new(Pool::new(memory, 2048, 192).expect("a pool"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fastlane_memif::fuzz::rings(data, &mut POOL.lock().expect("no input panicked"));
});
