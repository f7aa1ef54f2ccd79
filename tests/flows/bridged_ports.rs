//! Ports whose interfaces are bridges, as hosts of containers have them.

use serde_json::json;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier};

/// Makes `wire1` of the router a bridge with the link as its only member.
fn make_wire1_a_bridge(firewall: &Firewall) {
    let router = firewall.routed.router();
    // Otherwise Linux translates addresses before packets arrive on the bridge itself.
    let _ = router.attempt(&["sysctl", "-w", "net.bridge.bridge-nf-call-iptables=0"]);
    for words in [
        "link set wire1 down",
        "link set wire1 name leg",
        "address flush dev leg",
        "link add wire1 type bridge",
        "link set leg master wire1",
        "address add 10.78.0.1/24 dev wire1",
        "link set leg up",
        "link set wire1 up",
    ] {
        firewall.routed.ip(words);
    }
}

/// No driver runs XDP for a bridge. In the network stack the program would see each buffer made
/// linear, and nothing whose checksum is left to a device.
#[test]
fn flows_by_a_bridge_are_forwarded_as_hosts_send_them() {
    let flows = json!({ "capacity": 1024 });
    let rules = [RULES, MASQUERADE];
    let made = Firewall::without_offload(Tier::Ingress, "bridge", &rules, flows);
    let Some(mut firewall) = made else { return };
    make_wire1_a_bridge(&firewall);
    firewall.start_offload();
    let shown = firewall.routed.router().run(&["ip", "link", "show", "wire1"]);
    assert!(!shown.contains("prog/xdp"), "{shown}");
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    let counts = || {
        let arrived = firewall.routed.router().statistics("wire1")["rx"]["packets"].as_u64();
        (arrived.expect("a counter of ip"), firewall.count("forwarded"))
    };
    let before = counts();
    tcp.exchange(16 << 20);
    let after = counts();
    let (buffers, packets) = (after.0 - before.0, after.1 - before.1);
    // 16 MiB each way are 11,500 packets of 1460 bytes each way.
    assert!(packets > 22_000, "{packets} packets");
    assert!(buffers < packets / 4, "{packets} packets, {buffers} buffers by one of two wires");
    firewall.router.stop();
}
