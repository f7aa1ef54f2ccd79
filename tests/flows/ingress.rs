//! The kernel tier at the ingress of its interfaces: it gets packets as hosts send them, with
//! checksums and segments left to devices.

use fastlane_tests::eventually;

use super::firewall::{Connected, Firewall, MASQUERADE, RULES, Tier};

/// Starts a router with an established connection that is fast.
#[track_caller]
fn fast(story: &str) -> Option<(Firewall, Connected)> {
    let firewall = Firewall::new(Tier::Ingress, story, &[RULES, MASQUERADE])?;
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    Some((firewall, tcp))
}

fn has_xdp(firewall: &Firewall) -> bool {
    firewall.routed.router().run(&["ip", "link", "show", "wire0"]).contains("prog/xdp")
}

#[test]
fn what_hosts_leave_to_devices_passes_as_it_is() {
    let Some((firewall, mut tcp)) = fast("ingress") else { return };
    assert!(!has_xdp(&firewall));
    let arrived = || {
        let statistics = firewall.routed.router().statistics("wire0");
        statistics["rx"]["packets"].as_u64().expect("a counter of ip")
    };
    let before = (arrived(), firewall.count("forwarded"));
    tcp.exchange(16 << 20);
    let (frames, packets) = (arrived() - before.0, firewall.count("forwarded") - before.1);
    // 16 MiB each way are 11,500 packets of 1460 bytes each way.
    assert!(packets > 22_000, "{packets} packets");
    assert!(frames < packets / 4, "{packets} packets in {frames} frames by one of two wires");
    assert_eq!(firewall.count("linux_partial_checksum"), 0);
    firewall.router.stop();
}

#[test]
fn it_outlives_its_slow_path_and_is_removed_on_request() {
    let Some((mut firewall, mut tcp)) = fast("ingressout") else { return };
    firewall.kill_offload();
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.start_offload();
    let stderr = firewall.offload.as_ref().expect("it runs").stderr();
    assert!(stderr.contains("the kernel tier was adopted"), "{stderr}");
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.kill_offload();
    let ended = firewall.offload_with(&["--remove"]).wait();
    assert!(ended.status.success() && ended.stdout.contains("removed"), "{ended:?}");
    tcp.exchange(1 << 20);
    firewall.start_offload();
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.router.stop();
}

#[test]
fn a_recreated_interface_joins_it_again() {
    let Some((firewall, _tcp)) = fast("ingressnew") else { return };
    let udp = firewall.datagrams(5353);
    assert!(udp.exchange().is_some());
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || assert!(udp.exchange().is_some()));
    firewall.routed.ip("link del wire1");
    assert_eq!(udp.send(), None, "there is no link");
    firewall.routed.join("wire1", 1);
    eventually("packets pass again", || udp.exchange().is_some());
    firewall.until_forwarded(2, || {
        let _ = udp.exchange();
    });
    firewall.router.stop();
}
