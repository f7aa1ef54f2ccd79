//! The oldest, a middle and the newest kernel: tests of the mechanisms that use eBPF, unchanged.

use fastlane_tests::{Guest, Kernel};

/// Test programs with the folders of their packages, and arguments.
const PROGRAMS: [[&str; 3]; 5] = [
    ["crates/steer", "interfaces", ""],
    ["crates/af-xdp", "veth", ""],
    ["crates/kernel", "af_packet_port", ""],
    ["tests", "beside_linux", ""],
    ["crates/flow-tier", "adoption", ""],
];

/// Arguments for Linux 6.1 and 6.12, which do not tell what a veth without carrier drops: 0 of 100
/// packets are counted, where 6.18 and 7.3 tell all (docs/drivers.md).
const WITHOUT_DROPS: &str = "--skip what_the_device_does_not_take_is_counted";

/// Arguments for Linux 6.1, which has no tcx, and does not tell whether an interface transmits.
const WITHOUT_TCX: &str =
    "--skip ingress --skip whatever_its_next_tier --skip an_interface_that_does_not_transmit";

/// Returns the programs with arguments for those of a package.
fn with(changes: &[[&'static str; 2]]) -> Vec<[&'static str; 3]> {
    let of = |folder| changes.iter().find(|change| change[0] == folder);
    let changed = |[folder, name, arguments]: [&'static str; 3]| {
        [folder, name, of(folder).map_or(arguments, |change| change[1])]
    };
    PROGRAMS.map(changed).to_vec()
}

#[test]
fn linux_6_1_runs_the_tests_of_the_mechanisms() {
    let programs = with(&[["crates/af-xdp", WITHOUT_DROPS], ["crates/flow-tier", WITHOUT_TCX]]);
    Guest::new(Kernel::V6_1).seconds(1200).run_programs(&programs);
}

#[test]
fn linux_6_12_runs_the_tests_of_the_mechanisms() {
    let programs = with(&[["crates/af-xdp", WITHOUT_DROPS]]);
    Guest::new(Kernel::V6_12).seconds(1200).run_programs(&programs);
}

#[test]
fn the_newest_linux_runs_the_tests_of_the_mechanisms() {
    Guest::new(Kernel::Newest).seconds(1200).run_programs(&PROGRAMS);
}
