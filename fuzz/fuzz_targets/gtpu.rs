//! Fuzzes the GTP-U parser with arbitrary messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_wire::fuzz::gtpu(data));
