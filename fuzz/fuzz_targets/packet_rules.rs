//! Fuzzes the search in rules of nftables with arbitrary messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_mirror::fuzz::packet_rules(data));
