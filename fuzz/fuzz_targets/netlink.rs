//! Reads arbitrary messages of rtnetlink into the model of the kernel mirror.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_mirror::fuzz::netlink(data));
