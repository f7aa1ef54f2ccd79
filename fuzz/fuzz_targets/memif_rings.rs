//! Plays a memif peer that writes anything into the shared memory.
#![no_main]

use fastlane_core::Pool;
use fastlane_table::SharedMemory;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let memory = SharedMemory::create("fuzz", 16 * 2048).expect("memory");
    fastlane_memif::fuzz::rings(data, &mut Pool::new(memory, 2048, 192).expect("a pool"));
});
