//! Fuzzes the PFCP codec with arbitrary datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastlane_pfcp::fuzz::datagram(data));
