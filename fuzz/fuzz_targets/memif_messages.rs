//! Fuzzes memif's control channel with arbitrary messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_memif::fuzz::messages(data));
