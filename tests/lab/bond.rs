//! A bond of two links under the mechanisms that share an interface with Linux.

use std::time::Duration;

use fastlane_tests::{
    Application, Echo, Guest, Host, Kernel, LEFT_MAC, Lab, eventually, load_modules,
};
use serde_json::{Value, json};

/// Makes a bond of the links `one` and `two`, of which one at a time carries.
pub(crate) fn bond(host: &Host, bond: &str, address: Option<&str>) {
    host.run(&["ip", "link", "add", bond, "type", "bond", "mode", "active-backup"]);
    host.run(&["ip", "link", "set", bond, "type", "bond", "miimon", "10"]);
    if let Some(address) = address {
        host.run(&["ip", "link", "set", bond, "address", address]);
    }
    for name in ["one", "two"] {
        host.run(&["ip", "link", "set", name, "down"]);
        host.run(&["ip", "link", "set", name, "master", bond]);
    }
    host.run(&["ip", "link", "set", bond, "addrgenmode", "none", "up"]);
}

/// Returns a lab with a bond on both hosts.
fn bonded_lab() -> Lab {
    load_modules(&["bonding"]);
    let lab = Lab::new("lab-bond", 1).expect("the guest allows everything");
    ["one", "two"].iter().for_each(|name| lab.wire(name));
    bond(&lab.left, "bond0", Some(LEFT_MAC));
    bond(&lab.right, "bond0", None);
    lab
}

/// Runs macswap on the bond of the left host, which carries, also after its first link is down.
fn carries(driver: &Value) {
    let lab = bonded_lab();
    let macswap = Application::macswap(&lab, Application::steered(driver));
    let mut echo = Echo::new(&lab.right, "bond0");
    let mut carries = |when: &str| {
        eventually(when, || echo.try_once(Duration::from_millis(100)));
        (0..50).for_each(|_| echo.once());
    };
    carries("the bond carries");
    lab.right.run(&["ip", "link", "set", "one", "down"]);
    carries("the other link carries");
    macswap.stop();
}

#[test]
fn a_bond_carries_under_af_packet() {
    Guest::new(Kernel::V6_12).run(|| {
        carries(&json!({"af-packet": {"interface": "bond0"}}));
    });
}

#[test]
fn a_bond_carries_under_af_xdp_in_mode_auto() {
    Guest::new(Kernel::V6_12).run(|| {
        carries(&json!({"af-xdp": {"interface": "bond0"}}));
        // In the driver, the frames would reach no socket.
        let lab = bonded_lab();
        let driver = json!({"af-xdp": {"interface": "bond0", "mode": "native-copy"}});
        let (status, stderr) = Application::refused(&lab, &[], Application::steered(&driver));
        assert_eq!(status, Some(4), "{stderr}");
        assert!(stderr.contains("bond0 is a bonding device"), "{stderr}");
    });
}
