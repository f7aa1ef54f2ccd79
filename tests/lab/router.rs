//! The router on cards that DPDK drives, with TAPs for its Linux, between two hosts with the
//! kernel's driver.

use fastlane_tests::routed::drop_count;
use fastlane_tests::{
    Application, Guest, Kernel, Lab, Nic, Side, binary, eventually, load_modules,
};
use serde_json::{Value, json};

/// Returns a port on a card, whose TAP has a name and an address.
fn port(card: &Nic, tap: &str, address: &str) -> Value {
    json!({
        "driver": {"dpdk": {"device": card.address()}},
        "kernel": {"tap": {"name": tap, "addresses": [address]}},
    })
}

#[test]
fn the_router_forwards_between_two_cards_under_dpdk() {
    Guest::new(Kernel::V6_12).nics("igb").nics("igb").huge_pages(300).run(|| {
        load_modules(&["igb", "vfio_iommu_type1", "vfio-pci"]);
        let lab = Lab::new("lab-router", 1).expect("the guest allows everything");
        let far = lab.another().expect("another host");
        Nic::at(Nic::SECOND).replace_wire(&lab, Side::Right);
        Nic::at(Nic::FOURTH).move_to(&far, "wire1");
        far.add_address("wire1", "10.78.0.2/24");
        let [first, third] = [Nic::FIRST, Nic::THIRD].map(Nic::at);
        [&first, &third].iter().for_each(|card| card.bind("vfio-pci"));
        let configuration = json!({
            "ports": {
                "wire0": port(&first, "wire0", "10.77.0.1/24"),
                "wire1": port(&third, "wire1", "10.78.0.1/24"),
            },
            "mirror": {},
        });
        let router = Application::start(&lab, &lab.left, &binary("router"), configuration);
        lab.left.run(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
        lab.right.run(&["ip", "route", "add", "default", "via", "10.77.0.1"]);
        far.run(&["ip", "route", "add", "default", "via", "10.78.0.1"]);
        eventually("the hosts reach each other", || lab.right.ping(&["10.78.0.2"]));
        lab.right.assert_pings(100, &["10.78.0.2"]);
        far.assert_pings(100, &["10.77.0.2"]);
        let forwarded = drop_count(&router, "forwarded");
        assert!(forwarded >= 350, "{forwarded} of some 400 packets by the lane");
        router.stop();
    });
}
