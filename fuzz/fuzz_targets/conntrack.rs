//! Fuzzes the parser of ctnetlink with arbitrary messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_mirror::fuzz::conntrack(data));
