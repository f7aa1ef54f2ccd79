//! Fuzzes the kernel mirror with arbitrary rtnetlink messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_mirror::fuzz::netlink(data));
