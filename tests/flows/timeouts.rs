//! R9: Linux knows which flows are in use.

use std::time::{Duration, Instant};

use fastlane_tests::eventually;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier, for_each_tier};

for_each_tier!(r9_a_flow_in_use_stays_and_an_idle_one_expires,);

fn r9_a_flow_in_use_stays_and_an_idle_one_expires(tier: Tier) {
    const TIMEOUT: u64 = 3;
    let Some(mut firewall) =
        Firewall::without_offload(tier, "r9", &[RULES, MASQUERADE], serde_json::json!({}))
    else {
        return;
    };
    for key in ["udp_timeout", "udp_timeout_stream"] {
        firewall.routed.set(&format!("netfilter/nf_conntrack_{key}"), &TIMEOUT.to_string());
    }
    firewall.start_offload();
    let udp = firewall.datagrams(5353);
    let from = udp.exchange().expect("both arrive");
    firewall.wait_until_fast(5353);
    let before = firewall.count("linux_no_flow");
    let end = Instant::now() + Duration::from_secs(3 * TIMEOUT);
    while Instant::now() < end {
        // Another connection would have another source port.
        assert_eq!(udp.exchange(), Some(from));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(firewall.count("linux_no_flow"), before, "Linux has seen none of them");
    let listed = firewall.conntrack("-L -p udp --dport 5353");
    assert!(listed.contains("[ASSURED]"), "{listed}");
    // From the last packet on it expires on Linux's own clock.
    let last = Instant::now();
    eventually("the idle connection expires", || {
        !firewall.conntrack("-L -p udp --dport 5353").contains("5353")
    });
    let lived = last.elapsed();
    let bounds = Duration::from_secs(TIMEOUT - 1)..Duration::from_secs(TIMEOUT + 3);
    assert!(bounds.contains(&lived), "{lived:?}");
    firewall.wait_until_slow(5353);
    assert!(firewall.statistics()["offload_refreshed"] >= 3);
    firewall.router.stop();
}
