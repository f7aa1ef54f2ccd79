//! Fuzzes computation, update and completion of checksums with arbitrary frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_wire::fuzz::checksum(data));
