//! Restart of a fast path whose queues are in zero-copy: its driver has frames that the rings do
//! not name, and keeps the queues while a duplicate of a socket is open. So nobody else gets one.

use fastlane_tests::{Application, Guest, Kernel, binary, load_modules};
use serde_json::json;

use crate::support::{exchange, wired_lab};

/// Kills or stops a fast path whose queue is in zero-copy, and starts it again.
fn is_opened_anew(module: &str) {
    load_modules(&[module]);
    let (lab, _) = wired_lab();
    let _ = lab.left.attempt(&["ethtool", "-L", "wire0", "combined", "1"]);
    let driver = json!({"af-xdp": {"interface": "wire0", "mode": "zero-copy"}});
    let mut macswap = Application::macswap(&lab, Application::steered(&driver));
    let session = macswap.session().to_owned();
    // In copy mode it would be six.
    let keeper = macswap.keeper(0);
    for is_killed in [true, false, true] {
        let why = "port `wire`: its queues are in zero-copy, whose driver has frames that no ring \
                   names: a successor opens all ports anew";
        assert!(macswap.process.stderr().contains(why), "{}", macswap.process.stderr());
        exchange(&lab, 500);
        if is_killed {
            macswap.kill();
        } else {
            macswap.stop();
        }
        let mut command = lab.left.command(&[]);
        command.arg(binary("macswap")).arg(session.with_extension("json"));
        macswap = Application::run(command, session.clone());
        exchange(&lab, 500);
        assert_eq!(macswap.totals().mode("wire"), "zero-copy");
        macswap.is_kept_by(&keeper, 0);
    }
    macswap.stop();
    keeper.kill();
}

#[test]
fn zero_copy_queues_of_virtio_are_opened_anew() {
    let guest = Guest::new(Kernel::Newest).nics("virtio-net-pci,iommu_platform=on");
    guest.run(|| is_opened_anew("virtio_net"));
}

#[test]
fn zero_copy_queues_of_igb_are_opened_anew() {
    Guest::new(Kernel::Newest).nics("igb").run(|| is_opened_anew("igb"));
}
