//! R30: packets that Linux shapes, filters or transforms when they leave are Linux's.

use std::time::Duration;

use fastlane_tests::eventually;
use serde_json::json;

use super::firewall::{Datagrams, Firewall, RULES, Tier, for_each_tier};

for_each_tier!(
    r30_packets_that_traffic_control_sees_are_linuxs,
    r30_packets_that_ipsec_policies_cover_are_linuxs,
);

/// Number of exchanges that are counted.
const EXCHANGES: u64 = 20;

/// Runs tc(8) on the router.
#[track_caller]
fn tc(firewall: &Firewall, words: &str) -> String {
    let words: Vec<&str> = ["tc"].into_iter().chain(words.split(' ')).collect();
    firewall.routed.router().run(&words)
}

/// Returns the number of packets that the disciplines of `wire1` have sent.
#[track_caller]
fn shaped(firewall: &Firewall) -> u64 {
    let shown = tc(firewall, "-s qdisc show dev wire1");
    let count = shown.split_once("bytes ").and_then(|(_, rest)| rest.split_once(" pkt"));
    count.expect("statistics").0.parse().expect("a number")
}

/// Checks that what leaves by `wire1` is Linux's, and that what arrives by it stays fast.
#[track_caller]
fn leaves_by_linux(firewall: &Firewall, udp: &Datagrams) {
    let reason = match firewall.tier_name() {
        "kernel" => "linux_not_our_port",
        _ => "linux_traffic_control",
    };
    eventually("what leaves is Linux's", || {
        let before = firewall.count(reason);
        udp.assert_exchange();
        firewall.count(reason) > before
    });
    let (forwarded, left) = (firewall.count("forwarded"), firewall.count(reason));
    for _ in 0..EXCHANGES {
        udp.assert_exchange();
    }
    let counted = (firewall.count("forwarded") - forwarded, firewall.count(reason) - left);
    assert_eq!(counted, (EXCHANGES, EXCHANGES));
}

fn r30_packets_that_traffic_control_sees_are_linuxs(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r30", &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let is_fast = || firewall.until_forwarded(2, || udp.assert_exchange());
    is_fast();
    // A discipline that only queues, as Linux gives interfaces by itself.
    tc(&firewall, "qdisc replace dev wire1 root pfifo");
    is_fast();
    tc(&firewall, "qdisc replace dev wire1 root tbf rate 100mbit burst 100k latency 50ms");
    leaves_by_linux(&firewall, &udp);
    let before = shaped(&firewall);
    leaves_by_linux(&firewall, &udp);
    assert!(shaped(&firewall) >= before + EXCHANGES, "it sees each packet");
    tc(&firewall, "qdisc del dev wire1 root");
    is_fast();
    // Filters for arriving packets are not in the way; those for leaving ones are.
    tc(&firewall, "qdisc add dev wire1 clsact");
    tc(&firewall, "filter add dev wire1 ingress protocol ip u32 match u32 0 0 classid 1:1");
    is_fast();
    tc(&firewall, "filter add dev wire1 egress protocol ip u32 match u32 0 0 classid 1:1");
    leaves_by_linux(&firewall, &udp);
    tc(&firewall, "filter del dev wire1 egress");
    is_fast();
    tc(&firewall, "filter add dev wire1 egress protocol ip u32 match u32 0 0 classid 1:1");
    leaves_by_linux(&firewall, &udp);
    tc(&firewall, "qdisc del dev wire1 clsact");
    is_fast();
    // Filters of a block are of no interface. Linux tells which disciplines have the block.
    tc(&firewall, "qdisc add dev wire1 egress_block 7 clsact");
    tc(&firewall, "filter add block 7 protocol ip u32 match u32 0 0 classid 1:1");
    leaves_by_linux(&firewall, &udp);
    tc(&firewall, "qdisc del dev wire1 clsact");
    is_fast();
    firewall.router.stop();
}

#[test]
fn the_kernel_tier_disregards_traffic_control_on_request() {
    let flows = json!({ "capacity": 1024 });
    let Some(mut firewall) = Firewall::without_offload(Tier::Kernel, "r30no", &[RULES], flows)
    else {
        return;
    };
    let offload = firewall.offload_with(&["--set", "mirror.honour-traffic-control=false"]);
    offload.wait_for("router offload: running");
    firewall.offload = Some(offload);
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let is_fast = || firewall.until_forwarded(2, || udp.assert_exchange());
    is_fast();
    tc(&firewall, "qdisc replace dev wire1 root tbf rate 100mbit burst 100k latency 50ms");
    // The slow path looks every second.
    std::thread::sleep(Duration::from_secs(2));
    is_fast();
    assert_eq!(firewall.count("linux_not_our_port"), 0);
    firewall.router.stop();
}

fn r30_packets_that_ipsec_policies_cover_are_linuxs(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r30ip", &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    let other = firewall.datagrams(5354);
    for (udp, port) in [(&udp, 5353), (&other, 5354)] {
        udp.assert_exchange();
        firewall.wait_until_fast(port);
    }
    let selector = "src 0.0.0.0/0 dst 10.78.0.2/32 proto udp dport 5353 dir out";
    // Linux transforms packets if it has keys, which it has not.
    firewall.routed.ip(&format!(
        "xfrm policy add {selector} tmpl src 10.78.0.1 dst 10.78.0.9 proto esp mode transport \
         level use"
    ));
    firewall.wait_until_slow(5353);
    for _ in 0..EXCHANGES {
        udp.assert_exchange();
    }
    assert!(firewall.flows(&["--port", "5353"]).is_empty(), "it stays Linux's");
    assert!(!firewall.flows(&["--port", "5354"]).is_empty(), "others stay fast");
    let from = udp.source();
    let explained = firewall.explain(&format!("udp {from} {}", udp.to));
    assert!(explained.contains("linux: an IPsec policy"), "{explained}");
    // One that drops holds at once, as it does for packets that pass Linux.
    firewall.routed.ip(&format!("xfrm policy delete {selector}"));
    firewall.wait_until_fast(5353);
    firewall.routed.ip(&format!("xfrm policy add {selector} action block"));
    firewall.wait_until_slow(5353);
    assert!(udp.send().is_none(), "Linux drops it");
    other.assert_exchange();
    firewall.routed.ip("xfrm policy flush");
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.router.stop();
}
