//! AF_XDP on drivers with and without zero-copy.

use fastlane_tests::{Application, Guest, Kernel, Lab, load_modules};
use serde_json::{Value, json};

use crate::support::{carries, runs, wired_lab};

const VIRTIO: &str = "virtio-net-pci,iommu_platform=on";

fn on_wire(mode: &str) -> Value {
    json!({"af-xdp": {"interface": "wire0", "mode": mode}})
}

/// Connects the two devices of a driver, each with one queue.
fn lab_of(module: &str) -> Lab {
    load_modules(&[module]);
    let (lab, _) = wired_lab();
    // Some drivers have one queue only.
    let _ = lab.left.attempt(&["ethtool", "-L", "wire0", "combined", "1"]);
    lab
}

/// Runs macswap in mode `auto` on a driver's device. Returns the mode that it got.
fn automatic(module: &str) -> String {
    carries(&lab_of(module), &on_wire("auto"), 2000)
}

#[test]
fn auto_is_native_copy_on_igb_which_repeats_packets_with_zero_copy() {
    Guest::new(Kernel::Newest).nics("igb").run(|| {
        let lab = lab_of("igb");
        assert_eq!(carries(&lab, &on_wire("auto"), 2000), "native copy");
        assert_eq!(carries(&lab, &on_wire("zero-copy"), 2000), "zero-copy");
    });
}

#[test]
fn auto_is_zero_copy_on_virtio_of_the_newest_kernel() {
    let guest = Guest::new(Kernel::Newest).nics(VIRTIO);
    guest.run(|| assert_eq!(automatic("virtio_net"), "zero-copy"));
}

#[test]
fn auto_is_native_copy_on_igb_of_linux_6_12() {
    Guest::new(Kernel::V6_12).nics("igb").run(|| assert_eq!(automatic("igb"), "native copy"));
}

#[test]
fn auto_is_generic_copy_on_e1000e_which_has_no_xdp() {
    let guest = Guest::new(Kernel::Newest).nics("e1000e");
    guest.run(|| assert_eq!(automatic("e1000e"), "generic copy"));
}

/// With zero-copy, busy polling loses what is sent on these devices, as it stalls DPDK's driver:
/// docs/drivers.md.
#[test]
fn busy_polling_moves_packets_by_copies_on_igb() {
    Guest::new(Kernel::Newest).nics("igb").run(|| busy_polls("igb"));
}

#[test]
fn busy_polling_moves_packets_by_copies_on_virtio() {
    Guest::new(Kernel::Newest).nics(VIRTIO).run(|| busy_polls("virtio_net"));
}

fn busy_polls(module: &str) {
    let lab = lab_of(module);
    let mut driver = on_wire("auto");
    driver["af-xdp"]["busy-poll"] = json!({"time-us": 20, "budget": 64});
    assert_eq!(carries(&lab, &driver, 2000), "native copy");
}

/// The other ways to wait for a device: the kernel asks for each wake-up or is woken always, the
/// lane sleeps until an interrupt or polls.
#[test]
fn zero_copy_moves_packets_however_the_lane_waits() {
    Guest::new(Kernel::Newest).nics(VIRTIO).run(|| {
        let lab = lab_of("virtio_net");
        for (idle, need_wakeup) in [("interrupt", true), ("busy", true), ("busy", false)] {
            let mut driver = on_wire("zero-copy");
            driver["af-xdp"]["need-wakeup"] = json!(need_wakeup);
            let mut configuration = Application::steered(&driver);
            configuration["lanes"] = json!({"idle": idle});
            assert_eq!(runs(&lab, configuration, 2000), "zero-copy", "{idle}, {need_wakeup}");
        }
    });
}
