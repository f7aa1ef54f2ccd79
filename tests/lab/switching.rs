//! A PCI device that changes between vfio-pci, by which DPDK drives it, and the kernel's driver
//! with AF_XDP, while the application runs.

use std::process::Command;

use fastlane_tests::{Application, Guest, Kernel, binary, load_modules};
use serde_json::{Value, json};

use crate::support::{exchange, lab, wired_lab};

/// Switches the port. Returns the report.
#[track_caller]
fn switch(macswap: &Application, words: &[&str]) -> Value {
    let report = macswap.switch("wire", words);
    report.unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", macswap.process.stderr()))
}

#[test]
fn a_card_changes_between_dpdk_and_its_kernel_driver_and_back() {
    Guest::new(Kernel::V6_12).nics("igb").huge_pages(200).run(|| {
        load_modules(&["igb", "vfio_iommu_type1", "vfio-pci"]);
        let (lab, nic) = lab();
        // The interface appears in the first network namespace, so the application is there.
        let interface = format!("interface={}", nic.interface());
        nic.bind("vfio-pci");
        let driver = json!({"dpdk": {"device": nic.address()}});
        let (path, session) = Application::configure(&lab, Application::steered(&driver));
        let mut command = Command::new(binary("macswap"));
        command.arg(path);
        let macswap = Application::run(command, session);
        exchange(&lab, 500);
        let device = format!("device={}", nic.address());
        for _ in 0..2 {
            for words in [["af-xdp", &interface], ["dpdk", &device]] {
                let report = switch(&macswap, &words);
                eprintln!("{report}");
                let silence = report["silent-seconds"].as_f64().expect("seconds");
                assert!(silence > 0.0, "{report}");
                exchange(&lab, 500);
            }
        }
        // No interface of that name appears: the card is DPDK's again.
        let error = macswap.switch("wire", &["af-xdp", "interface=absent0"]).expect_err("absent");
        assert!(error.contains("no interface absent0"), "{error}");
        exchange(&lab, 500);
        macswap.stop();
    });
}

#[test]
fn a_card_that_removes_the_tags_of_vlans_is_not_switched_to_af_xdp() {
    Guest::new(Kernel::V6_12).nics("igb").run(|| {
        load_modules(&["igb"]);
        let (lab, _) = wired_lab();
        let removal = |state| lab.left.run(&["ethtool", "-K", "wire0", "rxvlan", state]);
        removal("on");
        let driver = json!({"af-packet": {"interface": "wire0"}});
        let mut configuration = Application::steered(&driver);
        configuration["ports"]["n3"] = json!({"driver": {"vlan": {"port": "wire", "id": 100}}});
        let macswap = Application::macswap(&lab, configuration);
        exchange(&lab, 500);
        let refused = macswap.switch("wire", &["af-xdp"]).expect_err("the tags would be lost");
        assert!(refused.contains("run `ethtool -K wire0 rxvlan off`"), "{refused}");
        exchange(&lab, 500);
        removal("off");
        switch(&macswap, &["af-xdp"]);
        exchange(&lab, 500);
        macswap.stop();
    });
}
