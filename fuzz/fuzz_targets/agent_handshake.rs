//! Fuzzes the agent's parser of the handshake with arbitrary records.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_agent::fuzz::handshake(data));
