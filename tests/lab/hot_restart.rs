//! Hot restart of a fast path whose queues are in zero-copy: its driver has frames that the rings
//! do not name, so a successor says so and opens the queues anew.

use fastlane_tests::{Application, Guest, Kernel, binary, load_modules};
use serde_json::json;

use crate::support::{exchange, wired_lab};

/// Descriptors that a fast path with one queue hands over.
const DESCRIPTORS: usize = 6;

/// Kills a fast path whose queue is in zero-copy, and starts it again.
fn is_opened_anew(module: &str) {
    load_modules(&[module]);
    let (lab, _) = wired_lab();
    let _ = lab.left.attempt(&["ethtool", "-L", "wire0", "combined", "1"]);
    let driver = json!({"af-xdp": {"interface": "wire0", "mode": "zero-copy"}});
    let mut macswap = Application::macswap(&lab, Application::steered(&driver));
    let session = macswap.session().to_owned();
    let keeper = macswap.keeper(DESCRIPTORS);
    for _ in 0..3 {
        exchange(&lab, 500);
        macswap.kill();
        let mut command = lab.left.command(&[]);
        command.arg(binary("macswap")).arg(session.with_extension("json"));
        macswap = Application::run(command, session.clone());
        let stderr = macswap.process.stderr();
        let why = "the inherited ports are closed and reopened: lane 0: queue 0 of `wire0` \
                   cannot be taken over: its driver has ";
        assert!(stderr.contains(why), "{stderr}");
        exchange(&lab, 500);
        assert_eq!(macswap.totals().mode("wire"), "zero-copy");
        macswap.is_kept_by(&keeper, DESCRIPTORS);
    }
    macswap.stop();
    keeper.kill();
}

#[test]
fn a_successor_says_why_it_opens_zero_copy_queues_of_virtio_anew() {
    let guest = Guest::new(Kernel::Newest).nics("virtio-net-pci,iommu_platform=on");
    guest.run(|| is_opened_anew("virtio_net"));
}

#[test]
fn a_successor_says_why_it_opens_zero_copy_queues_of_igb_anew() {
    Guest::new(Kernel::Newest).nics("igb").run(|| is_opened_anew("igb"));
}
