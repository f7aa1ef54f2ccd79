//! A rule makes connections fast once they have grown. Of short ones the slow path hears nothing.

use fastlane_tests::eventually;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier, for_each_tier, transfer};

for_each_tier!(a_short_connection_is_not_reported_and_a_long_one_becomes_fast);

/// Ports of connections that stay short.
const SHORT: std::ops::Range<u16> = 8080..8096;
/// Port of the connection that grows.
const LONG: u16 = 8100;

/// Returns the rules, by which Linux reports a connection when it has grown and when it is removed.
fn rules() -> String {
    let grown = "ct state established ct packets > 64 ct mark set ct mark | 0x1 accept
    ct state established,related accept";
    let quiet = "iifname \"wire0\" ct event set \"mark\",destroy accept";
    RULES
        .replace("ct state established,related ct mark set ct mark | 0x1 accept", grown)
        .replace("iifname \"wire0\" accept", quiet)
}

fn a_short_connection_is_not_reported_and_a_long_one_becomes_fast(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "growth", &[&rules(), MASQUERADE]) else { return };
    let before = firewall.statistics();
    let mut long = firewall.connect(LONG);
    for port in SHORT {
        firewall.connect(port).exchange(1000);
    }
    long.exchange(1000);
    let heard = firewall.statistics();
    for name in ["offload_added", "offload_touched", "offload_flows"] {
        assert_eq!(heard[name], before[name], "{name}");
    }
    let events = heard["offload_events"] - before["offload_events"];
    assert!(events < SHORT.len() as u64, "{events} reports");
    assert_eq!(firewall.conntrack("-L -p tcp -m 1").trim(), "", "none is marked");

    // Linux counts what it divides later as one packet.
    transfer(&mut long.near, &mut long.far, 8 << 20);
    firewall.wait_until_fast(LONG);
    firewall.until_forwarded(100, || long.exchange(1 << 20));
    assert_eq!(firewall.flows(&[]).len(), 1);
    // What is unmarked is grown still: the next packet marks it again.
    let added = firewall.statistics()["offload_added"];
    firewall.mark_of(LONG).set(0, 1);
    eventually("it is fast again", || {
        long.exchange(1000);
        firewall.statistics()["offload_added"] > added
    });
    firewall.router.stop();
}
