//! Ports whose interfaces belong to a VRF.

use fastlane_tests::{eventually, load_modules};

use super::firewall::{Firewall, RULES, Tier};

/// Number of exchanges that are counted.
const EXCHANGES: u64 = 50;

/// The kernel tier leaves interfaces to Linux while they belong to a VRF, and says so. It runs in a
/// guest: few kernels have the module.
#[test]
#[ignore = "it needs a kernel with VRFs: tests/lab/linux_devices.rs runs it in a guest"]
fn the_kernel_tier_leaves_a_vrf_to_linux() {
    load_modules(&["vrf"]);
    let firewall = Firewall::new(Tier::Kernel, "vrf", &[RULES]).expect("the guest allows it");
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.routed.ip("link add red type vrf table 10");
    firewall.routed.ip("link set red up");
    for interface in ["wire0", "wire1"] {
        firewall.routed.ip(&format!("link set {interface} master red"));
    }
    let says = |words: &str| {
        let offload = firewall.offload.as_ref().expect("it runs");
        offload.stderr().matches(words).count()
    };
    let left = "are left to Linux: it belongs to a VRF";
    eventually("the slow path notices it", || says(left) == 2);
    // By the table of the VRF, which the interfaces have taken their routes to. For the rules
    // packets arrive by the VRF.
    firewall.nft("add rule inet firewall forward iifname red accept");
    let other = firewall.datagrams(5354);
    eventually("Linux forwards", || other.exchange().is_some());
    let before = firewall.count("forwarded");
    for _ in 0..EXCHANGES {
        other.assert_exchange();
        udp.assert_exchange();
    }
    assert_eq!(firewall.count("forwarded"), before);
    for interface in ["wire0", "wire1"] {
        firewall.routed.ip(&format!("link set {interface} nomaster"));
    }
    eventually("it is back", || says("now") == 2);
    firewall.until_forwarded(2, || {
        let _ = udp.exchange();
    });
    firewall.router.stop();
}
