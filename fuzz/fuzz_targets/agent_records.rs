//! Fuzzes the agent's parser of requests with arbitrary records.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_agent::fuzz::record(data));
