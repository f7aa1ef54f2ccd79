//! Every contender on DPDK moves packets.

use std::time::Duration;

use fastlane_bench::rivals::dpdk_loop::Compiled;
use fastlane_bench::scenarios::dpdk::virtual_devices::{Device, DpdkContender, Setting, compare};
use fastlane_bench::slices::Effort;
use fastlane_testing::skip;

fn moves(device: Device) {
    let effort = Effort { pairs: 1, slice: Duration::from_millis(50) };
    let compiled = match Compiled::new() {
        Ok(compiled) => compiled,
        Err(error) => return skip("bench-dpdk", &error.to_string()),
    };
    let setting = Setting { device, burst: 32, length: 60 };
    let pairs = compare(
        [DpdkContender::ByHand, DpdkContender::Testpmd],
        setting,
        &compiled,
        effort,
        |_| {},
    )
    .unwrap();
    // A plausible time per packet shows that counts and times belong together.
    assert!(pairs.ours.iter().chain(&pairs.rival).all(|ns| (0.2..500.0).contains(ns)), "{pairs:?}");
}

#[test]
fn rivals_move_packets_on_a_ring() {
    moves(Device::Ring);
}

#[test]
fn rivals_move_packets_on_a_null_device() {
    moves(Device::Null(64));
}
