//! A router on a stick: one link with a VLAN for each host. Linux has an interface of each VLAN,
//! with its addresses and routes, and the router forwards between ports that are VLANs.

use fastlane_tests::{Application, Host, Lab, Mechanism, Vlan, binary, eventually};
use serde_json::json;

use crate::{drop_count, wait_until_fast};

/// Interface, VLAN identifier and number of the network of each host.
const VLANS: [(&str, u16, u32); 2] = [("v100", 100, 90), ("v200", 200, 91)];

/// Gives an interface its addresses, and sets it up.
fn configure(host: &Host, name: &str, network: u32, last: u32) {
    host.run(&["ip", "link", "set", name, "addrgenmode", "none", "up"]);
    let [four, six] = [format!("10.{network}.0.{last}/24"), format!("fd{network}::{last}/64")];
    host.run(&["ip", "address", "add", &four, "dev", name]);
    host.run(&["ip", "address", "add", &six, "dev", name, "nodad"]);
}

/// Starts the router. Where Linux has no VLAN interfaces, each port has a TAP in their place.
fn start(lab: &Lab, mechanism: Mechanism, has_taps: bool) -> Application {
    let rules = json!([{"ethertype": "ipv4"}, {"ethertype": "ipv6"}]);
    let vlan = |(name, id, _): (&str, u16, u32)| {
        let mut port = json!({"driver": {"vlan": {"port": "wire", "id": id}}, "steer": rules});
        if has_taps {
            port["kernel"] = json!({"tap": {"name": name}});
        }
        port
    };
    let configuration = json!({
        "ports": {"wire": {"driver": mechanism.on("trunk"), "steer": [{"udp-port": 9}]},
                  "left": vlan(VLANS[0]), "right": vlan(VLANS[1])},
        "mirror": {}, "tables": {"causes": {"capacity": 64}},
    });
    Application::start(lab, &lab.left, &binary("router"), configuration)
}

fn story(mechanism: Mechanism) {
    let Some(lab) = Lab::new("router-vlan", 1) else { return };
    let Some(far) = lab.another() else { return };
    let (router, near) = (&lab.left, &lab.right);
    lab.wire("trunk");
    near.run(&["ethtool", "-K", "trunk", "txvlan", "off"]);
    let mut vlans = Vec::new();
    for ((name, id, network), host) in VLANS.into_iter().zip([near, &far]) {
        vlans.push(Vlan::add(near, "trunk", id, name, host));
        if vlans.iter().all(Vlan::is_of_linux) {
            vlans.push(Vlan::add(router, "trunk", id, name, router));
            configure(router, name, network, 1);
        }
    }
    let has_taps = !vlans.iter().all(Vlan::is_of_linux);
    for ((name, _, network), host) in VLANS.into_iter().zip([near, &far]) {
        configure(host, name, network, 2);
        host.run(&["ip", "route", "add", "default", "via", &format!("10.{network}.0.1")]);
        host.run(&["ip", "-6", "route", "add", "default", "via", &format!("fd{network}::1")]);
    }
    router.run(&["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]);
    router.run(&["sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1"]);

    let running = start(&lab, mechanism, has_taps);
    if has_taps {
        VLANS.iter().for_each(|(name, _, network)| configure(router, name, *network, 1));
    }
    wait_until_fast(&running, near, "10.91.0.2");
    wait_until_fast(&running, near, "fd91::2");
    near.assert_pings(5, &["-M", "do", "-s", "1472", "10.91.0.2"]);
    // Linux answers for the router, on both VLANs.
    near.assert_pings(3, &["10.90.0.1"]);
    near.assert_pings(3, &["10.91.0.1"]);

    if has_taps {
        running.stop();
        return;
    }
    // Without Linux's interface nothing is forwarded; with a new one it is again.
    router.run(&["ip", "link", "delete", "v200"]);
    eventually("nothing is forwarded", || {
        let before = drop_count(&running, "forwarded");
        !near.ping(&["10.91.0.2"]) && drop_count(&running, "forwarded") == before
    });
    vlans.push(Vlan::add(router, "trunk", 200, "v200", router));
    configure(router, "v200", 91, 1);
    eventually("it is forwarded again", || near.ping(&["10.91.0.2"]));
    wait_until_fast(&running, near, "10.91.0.2");
    let totals = running.totals();
    assert_eq!(totals.port("wire", "verdict_forward"), 0, "{mechanism:?}: {}", totals.0);
    running.stop();
}

#[test]
fn a_router_forwards_between_vlans_of_one_link() {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric, Mechanism::Packet] {
        story(mechanism);
    }
}
