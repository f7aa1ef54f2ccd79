//! The oldest, a middle and the newest kernel: tests of the mechanisms that use eBPF, unchanged.

use fastlane_tests::{Guest, Kernel};

/// Test programs with the folders of their packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("crates/steer", "interfaces"),
    ("crates/af-xdp", "veth"),
    ("crates/kernel", "af_packet_port"),
    ("tests", "beside_linux"),
];

#[test]
fn linux_6_1_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::V6_1).seconds(1200).run_programs(&PROGRAMS);
}

#[test]
fn linux_6_12_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::V6_12).seconds(1200).run_programs(&PROGRAMS);
}

#[test]
fn the_newest_linux_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::Newest).seconds(1200).run_programs(&PROGRAMS);
}
