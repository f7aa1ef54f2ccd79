//! Fuzzes the parser of IPsec policies with arbitrary messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_mirror::fuzz::ipsec(data));
