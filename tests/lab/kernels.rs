//! The oldest, a middle and the newest kernel: tests of the mechanisms that use eBPF, unchanged.

use fastlane_tests::{Guest, Kernel};

/// Test programs with the folders of their packages, and arguments.
const PROGRAMS: [[&str; 3]; 4] = [
    ["crates/steer", "interfaces", ""],
    ["crates/af-xdp", "veth", ""],
    ["crates/kernel", "af_packet_port", ""],
    ["tests", "beside_linux", ""],
];

/// The same for Linux 6.1 and 6.12, which do not tell what a veth without carrier drops: 0 of 100
/// packets are counted, where 6.18 and 7.3 tell all (docs/drivers.md).
const OLDER: [[&str; 3]; 4] = [
    PROGRAMS[0],
    ["crates/af-xdp", "veth", "--skip what_the_device_does_not_take_is_counted"],
    PROGRAMS[2],
    PROGRAMS[3],
];

#[test]
fn linux_6_1_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::V6_1).seconds(1200).run_programs(&OLDER);
}

#[test]
fn linux_6_12_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::V6_12).seconds(1200).run_programs(&OLDER);
}

#[test]
fn the_newest_linux_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::Newest).seconds(1200).run_programs(&PROGRAMS);
}
