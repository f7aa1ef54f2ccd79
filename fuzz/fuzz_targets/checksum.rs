//! Sums, changes and completes the checksums of arbitrary frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_wire::fuzz::checksum(data));
