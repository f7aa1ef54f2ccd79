//! Devices and tables of Linux that few kernels have: VLAN, bond and VRF devices under the UPF and
//! the router, and flow tables of netfilter.

use fastlane_tests::routed::{FAR, Routed, drop_count};
use fastlane_tests::upf::{Driver, UpfLab};
use fastlane_tests::{Guest, Kernel, Mechanism, Vlan, eventually, load_modules};
use serde_json::{Value, json};

use crate::bond::bond;
use crate::kernel_gtp::serves_linux;

/// Addresses of the UPF's interfaces.
const N3: &str = "10.30.0.1/24";
const N6: &str = "10.60.0.1/24";

/// Returns a lab whose N3 `connect` makes, beside a veth pair for N6.
fn lab_with_n3(connect: impl FnOnce(&UpfLab)) -> UpfLab {
    // N3 is not a veth pair.
    let lab = UpfLab::new("lab-devices", Driver::Tap).expect("the guest allows everything");
    connect(&lab);
    lab.hosts.wire("n6");
    lab.hosts.left.add_address("n3", N3);
    lab.hosts.left.add_address("n6", N6);
    lab
}

/// Returns the configuration of a UPF whose ports are the interfaces `n3` and `n6`.
fn on(lab: &UpfLab, mechanism: &str) -> Value {
    let mut configuration = lab.configuration(8, &[]);
    for name in ["n3", "n6"] {
        let port = &mut configuration["ports"][name];
        port["driver"] = json!({mechanism: {"interface": name}});
        port["kernel"] = json!("re-enter");
    }
    configuration
}

#[test]
fn the_upf_has_its_n3_on_a_bond() {
    Guest::new(Kernel::V6_12).run(|| {
        load_modules(&["bonding"]);
        let lab = lab_with_n3(|lab| {
            ["one", "two"].iter().for_each(|name| lab.hosts.wire(name));
            bond(&lab.hosts.left, "n3", None);
            bond(&lab.hosts.right, "n3", None);
        });
        serves_linux(&lab, on(&lab, "af-xdp"), "main");
    });
}

#[test]
fn the_upf_has_its_n3_on_a_vlan_interface_of_linux() {
    Guest::new(Kernel::V6_12).run(|| {
        load_modules(&["8021q"]);
        let mut vlans = Vec::new();
        let lab = lab_with_n3(|lab| {
            lab.hosts.wire("trunk");
            for host in [&lab.hosts.left, &lab.hosts.right] {
                vlans.push(Vlan::add(host, "trunk", 100, "n3", host));
                host.run(&["ip", "link", "set", "n3", "addrgenmode", "none", "up"]);
            }
        });
        assert!(vlans.iter().all(Vlan::is_of_linux));
        serves_linux(&lab, on(&lab, "af-packet"), "main");
    });
}

#[test]
fn the_upf_has_its_n6_in_a_vrf() {
    Guest::new(Kernel::V6_12).run(|| {
        load_modules(&["vrf"]);
        let lab = UpfLab::new("lab-vrf", Driver::AfXdp).expect("the guest allows everything");
        join_vrf(&lab.hosts.left, &["n6"]);
        let mut configuration = lab.configuration(8, &[]);
        configuration["app"]["interfaces"]["n6"]["route-table"] = json!(10);
        serves_linux(&lab, configuration, "10");
    });
}

/// Makes interfaces members of a VRF with the routing table 10.
fn join_vrf(host: &fastlane_tests::Host, interfaces: &[&str]) {
    host.run(&["ip", "link", "add", "red", "type", "vrf", "table", "10"]);
    host.run(&["ip", "link", "set", "red", "up"]);
    for interface in interfaces {
        host.run(&["ip", "link", "set", interface, "master", "red"]);
    }
}

/// The main table, which the router holds, has another route to the destination than the VRF.
fn leaves_a_vrf_to_linux(mechanism: Mechanism) {
    let routed = Routed::new("lab-vrf").expect("the guest allows everything");
    join_vrf(routed.router(), &["wire0", "wire1"]);
    routed.add_hops();
    routed.ip("route add 10.78.0.2/32 via 10.79.0.11 dev wire2");
    let router = routed.start(mechanism, &[]);
    let near = &routed.lab.right;
    let wrong = || routed.far.statistics("wire2")["rx"]["packets"].as_u64().expect("a counter");
    let before = wrong();
    eventually("Linux answers and forwards", || near.ping(&[FAR]));
    near.assert_pings(50, &[FAR]);
    assert_eq!(drop_count(&router, "forwarded"), 0, "by the main table");
    assert!(drop_count(&router, "linux_vrf") >= 100);
    assert!(wrong() < before + 20, "they leave by the route of the main table");
    router.stop();
}

#[test]
fn the_router_leaves_packets_of_a_vrf_to_linux() {
    Guest::new(Kernel::V6_12).run(|| {
        load_modules(&["vrf"]);
        leaves_a_vrf_to_linux(Mechanism::XdpNative);
        leaves_a_vrf_to_linux(Mechanism::Packet);
    });
}

/// Ports that are VLANs, of which Linux has interfaces of its own beside the router.
#[test]
fn the_router_forwards_between_vlans_beside_the_interfaces_of_linux() {
    Guest::new(Kernel::V6_12).run_programs(&[["tests", "router", "vlan::"]]);
}

#[test]
fn the_router_leaves_connections_of_a_flow_table_to_it() {
    Guest::new(Kernel::V6_12).run_programs(&[["tests", "flows", "--ignored flowtable::"]]);
}

#[test]
fn flows_by_a_bond_are_fast_in_the_kernel_tier() {
    Guest::new(Kernel::V6_12).run_programs(&[["tests", "flows", "--ignored bonded_ports::"]]);
}

#[test]
fn the_kernel_tier_leaves_a_vrf_to_linux() {
    Guest::new(Kernel::V6_12).run_programs(&[["tests", "flows", "--ignored vrf::"]]);
}
