//! Ports whose interfaces are bonds.

use fastlane_tests::load_modules;
use serde_json::json;

use super::firewall::{Firewall, RULES, Tier};

/// Makes `wire1` a bond of two links, on the router and on the far host.
fn make_wire1_a_bond(firewall: &Firewall) {
    let (router, far) = (firewall.routed.router(), &firewall.routed.far);
    firewall.routed.ip("link del wire1");
    for name in ["one", "two"] {
        let path = far.path();
        firewall.routed.ip(&format!("link add {name} type veth peer name {name} netns {path}"));
    }
    for (host, last) in [(router, 1), (far, 2)] {
        let ip = |words: &str| {
            let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
            host.run(&words);
        };
        ip("link add wire1 type bond mode active-backup miimon 10");
        for name in ["one", "two"] {
            ip(&format!("link set {name} down"));
            ip(&format!("link set {name} master wire1"));
            // The end of a veth pair takes redirected frames only with GRO, and checksums must be
            // complete.
            host.run(&["ethtool", "-K", name, "gro", "on", "tx", "off"]);
        }
        ip(&format!("address add 10.78.0.{last}/24 dev wire1"));
        ip("link set wire1 up");
    }
    far.run(&["ip", "route", "add", "default", "via", "10.78.0.1"]);
}

/// A bond takes the program itself, at its ingress: on its members, packets would arrive by
/// interfaces that are no ports. It runs in a guest: few kernels have the module.
#[test]
#[ignore = "it needs a kernel with bonds: tests/lab/linux_devices.rs runs it in a guest"]
fn flows_by_a_bond_are_fast_in_the_kernel_tier() {
    load_modules(&["bonding"]);
    let flows = json!({ "capacity": 1024 });
    let mut firewall = Firewall::without_offload(Tier::Kernel, "bond", &[RULES], flows)
        .expect("the guest allows it");
    make_wire1_a_bond(&firewall);
    // As it is configured, in native mode.
    let ended = firewall.offload_with(&[]).wait();
    assert!(ended.stderr.contains("a bond or team run it): use generic mode"), "{ended:?}");
    let offload = firewall.offload_with(&["--set", "ports.wire1.driver.af-xdp.mode=auto"]);
    offload.wait_for("router offload: running");
    firewall.offload = Some(offload);
    let shown = firewall.routed.router().run(&["ip", "link", "show", "wire1"]);
    assert!(!shown.contains("prog/xdp"), "{shown}");
    let udp = firewall.datagrams(5353);
    while udp.exchange().is_none() {} // the bond needs a moment
    firewall.wait_until_fast(5353);
    // Both directions.
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.router.stop();
}
