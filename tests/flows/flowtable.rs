//! A flow table of Linux (nf_flow_table) on the interfaces of the router.

use std::time::Duration;

use super::firewall::{Firewall, Tier};

/// Rules that mark established connections, and give them to a flow table of Linux as well.
const RULES: &str = "
table inet firewall {
  flowtable fast {
    hook ingress priority 0; devices = { wire0, wire1 };
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    meta l4proto { tcp, udp } ct state established flow add @fast
    ct state established,related ct mark set ct mark | 0x1 accept
    iifname \"wire0\" accept
  }
}";

/// Number of datagrams in each direction.
const DATAGRAMS: usize = 200;

/// Linux's flow table forwards the connections that it has, and the router leaves them to it by
/// name: no packet is lost, none arrives twice. It runs in a guest: few kernels have the module.
#[test]
#[ignore = "it needs a kernel with nf_flow_table: tests/lab/linux_devices.rs runs it in a guest"]
fn connections_of_a_flow_table_are_left_to_it() {
    let firewall = Firewall::new(Tier::Lanes, "flowtable", &[RULES]).expect("the guest allows it");
    let mut tcp = firewall.connect(8080);
    let udp = firewall.datagrams(5353);
    // The first packets have Linux find the neighbours, and establish the connections.
    while udp.exchange().is_none() {}
    tcp.exchange(1 << 16);
    let offloaded =
        |protocol: &str| firewall.conntrack(&format!("-L -p {protocol}")).contains("[OFFLOAD]");
    assert!(offloaded("tcp") && offloaded("udp"), "{}", firewall.conntrack("-L"));
    for _ in 0..DATAGRAMS {
        udp.assert_exchange();
    }
    tcp.exchange(1 << 20);
    for socket in [&udp.near, &udp.far] {
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        assert!(socket.recv(&mut [0; 64]).is_err(), "a datagram has arrived twice");
    }
    assert!(offloaded("tcp") && offloaded("udp"), "{}", firewall.conntrack("-L"));
    assert_eq!(firewall.flows(&[]), [] as [&str; 0]);
    assert_eq!(firewall.count("forwarded"), 0);
    assert!(firewall.statistics()["offload_refused_offloaded"] >= 2);
    let port = tcp.near.local_addr().expect("an address").port();
    let explained = firewall.explain(&format!("tcp 10.77.0.2:{port} 10.78.0.2:8080"));
    assert!(explained.contains("a flow table of Linux, or a device, handles it"), "{explained}");
    // Without the table, later connections are the router's.
    firewall.routed.router().run(&["nft", "flush", "ruleset"]);
    firewall.nft(super::firewall::RULES);
    let mut tcp = firewall.connect(8081);
    tcp.exchange(1000);
    firewall.wait_until_fast(8081);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.router.stop();
}
