//! The conformance suite of the drivers on emulated cards.

use std::process::Command;

use fastlane_tests::{Guest, Kernel, Nic, load_modules, test_program};

/// Changes a setting, if the driver has it: some have one queue only, or rings of one length.
fn ethtool(words: &[&str]) {
    let _ = Command::new("ethtool").args(words).status();
}

/// Runs a test program with a card and the interface at the other end of its cable.
#[track_caller]
fn conforms(program: &str, card: &str) {
    let wire = Nic::at(Nic::SECOND).interface();
    // The peer sees the order of frames, and has room for the bursts.
    ethtool(&["-L", &wire, "combined", "1"]);
    ethtool(&["-G", &wire, "rx", "4096"]);
    ethtool(&["-K", &wire, "gro", "off"]);
    let mut command = Command::new(test_program(program));
    command.args(["--test-threads", "1"]).env("FASTLANE_CARD", format!("{card} {wire}"));
    let status = command.status().expect("the test program can be started");
    assert!(status.success(), "{program} on {card}: {status}");
}

#[test]
fn dpdk_conforms_on_igb() {
    Guest::new(Kernel::V6_12).nics("igb").huge_pages(300).seconds(1200).run(|| {
        load_modules(&["igb", "vfio_iommu_type1", "vfio-pci"]);
        let card = Nic::at(Nic::FIRST);
        card.bind("vfio-pci");
        conforms("dpdk_card", card.address());
    });
}
