//! The oldest, a middle and the newest kernel: the tests of each mechanism, unchanged.

use fastlane_tests::{Guest, Kernel};

/// Runs a test program on all kernels.
fn on_all(folder: &str, program: &str, arguments: &str) {
    for kernel in Kernel::ALL {
        Guest::new(kernel).seconds(1200).run_program(folder, program, arguments);
    }
}

/// Programs, rules and maps, as this machine's kernel has them.
#[test]
fn steering_programs_load_and_agree_with_the_rules() {
    on_all("crates/steer", "interfaces", "");
    on_all("crates/steer", "replace", "");
}

#[test]
fn af_xdp_carries_and_is_adopted() {
    on_all("crates/af-xdp", "veth", "");
    on_all("crates/af-xdp", "hot_restart", "");
}

#[test]
fn af_packet_and_taps_carry() {
    on_all("crates/kernel", "af_packet_port", "");
    on_all("crates/kernel", "tap_port", "");
}

#[test]
fn applications_run_beside_linux() {
    on_all("tests", "beside_linux", "");
}
