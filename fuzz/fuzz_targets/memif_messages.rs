//! Reads arbitrary messages of memif's control channel.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_memif::fuzz::messages(data));
