//! The memif client and all devices on memif return every frame in order.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastlane_bench::device::memif_server::{Device, MemifContender};
use fastlane_bench::rivals::dpdk_loop::Compiled;
use fastlane_testing::skip;

/// Lock that serializes the tests: the client and the device use their CPUs exclusively.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn echoes(who: MemifContender) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = match Compiled::new() {
        Ok(compiled) => compiled,
        Err(error) => return skip("bench-memif", &error.to_string()),
    };
    for length in [60, 1020] {
        let mut device = Device::start(who, length, "busy", &compiled).unwrap();
        let slice = Duration::from_millis(50);
        let (packets, cpu) = device.during(|client| client.closed(256, slice)).unwrap();
        assert!(packets > 0 && !cpu.is_zero(), "{packets} packets, {cpu:?}");
        let (trips, _) = device.during(|client| client.paced(10_000.0, slice)).unwrap();
        assert_eq!(trips.times.len() as u64, trips.sent);
    }
}

#[test]
fn testpmd_echoes_every_frame() {
    echoes(MemifContender::Testpmd);
}

#[test]
fn the_loop_by_hand_echoes_every_frame() {
    echoes(MemifContender::ByHand);
}
