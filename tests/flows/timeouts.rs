//! R9: Linux knows which flows are in use.

use std::time::{Duration, Instant};

use fastlane_tests::eventually;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier, for_each_tier};

for_each_tier!(
    r9_a_flow_in_use_stays_and_an_idle_one_expires,
    r9_a_shorter_timeout_of_a_policy_holds,
);

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
    let from = udp.source();
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

fn r9_a_shorter_timeout_of_a_policy_holds(tier: Tier) {
    const TIMEOUT: u64 = 6;
    let policy = format!(
        "
table inet policies {{
  ct timeout short {{
    protocol tcp
    l3proto ip
    policy = {{ established : {TIMEOUT} }}
  }}
  chain prerouting {{
    type filter hook prerouting priority 0;
    tcp dport 8080 ct timeout set \"short\"
  }}
}}"
    );
    let Some(firewall) = Firewall::new(tier, "r9-policy", &[RULES, MASQUERADE, &policy]) else {
        return;
    };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    let listed = || firewall.conntrack("-L -p tcp --dport 8080");
    let left = || -> u64 {
        let listed = listed();
        let mut words = listed.split_whitespace().skip(2);
        words.next().and_then(|word| word.parse().ok()).expect("the seconds that are left")
    };
    let end = Instant::now() + Duration::from_secs(2 * TIMEOUT);
    while Instant::now() < end {
        tcp.exchange(1000);
        assert!(left() <= TIMEOUT, "{}", listed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let last = Instant::now();
    eventually("the idle connection expires", || !listed().contains("8080"));
    let lived = last.elapsed();
    let bounds = Duration::from_secs(TIMEOUT / 2)..Duration::from_secs(TIMEOUT + 3);
    assert!(bounds.contains(&lived), "{lived:?}");
    firewall.router.stop();
}
