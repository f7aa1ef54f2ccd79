//! Ports of both tiers: the XDP program forwards first, lanes get what it passes.

use fastlane_tests::eventually;
use serde_json::json;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier};
use super::survival;

/// Time without a slow path in which flows stay fast, in milliseconds: longer than a story.
const GRACE: u32 = 600_000;

/// Waits until the tier that forwards most packets of the only flow is this one.
#[track_caller]
fn wait_until_by(firewall: &Firewall, tier: &str, mut exchange: impl FnMut()) {
    let packets = |tier: &str| {
        let flow = firewall.flows(&["--tier", tier]).pop()?;
        let (_, counts) = flow.split_once(" packets ").expect("the counts");
        counts.split(' ').next().and_then(|it| it.parse::<u64>().ok())
    };
    eventually("the tier forwards", || {
        exchange();
        packets(tier).is_some()
    });
}

#[test]
fn the_tier_comes_and_goes_while_lanes_have_the_port() {
    let flows = json!({ "capacity": 1024, "grace": GRACE });
    let rules = [RULES, MASQUERADE];
    let Some(mut firewall) = Firewall::with(Tier::Both, "both", &rules, flows) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    wait_until_by(&firewall, "kernel", || tcp.exchange(1 << 20));
    let by_lanes = |firewall: &Firewall| {
        let totals = firewall.router.totals();
        totals.port("wire0", "verdict_forward") + totals.port("wire1", "verdict_forward")
    };
    // Lanes saw what begins and what ends connections, but no packet of an established one. A
    // neighbour that Linux asks for again sends some through them.
    let mut before = by_lanes(&firewall);
    eventually("lanes see nothing", || {
        tcp.exchange(1 << 20);
        std::mem::replace(&mut before, by_lanes(&firewall)) == before
    });
    // Without the tier lanes forward at once.
    firewall.kill_offload();
    let ended = firewall.offload_with(&["--remove"]).wait();
    assert!(ended.status.success(), "{ended:?}");
    let before = by_lanes(&firewall);
    eventually("lanes forward", || {
        tcp.exchange(1 << 20);
        by_lanes(&firewall) > before + 500
    });
    // It comes back, also when the fast path was replaced.
    firewall.start_offload();
    for is_replaced in [false, true] {
        if is_replaced {
            firewall.replace_router();
            firewall.wait_until_fast(8080);
        }
        let mut before = by_lanes(&firewall);
        eventually("the tier is first again", || {
            tcp.exchange(1 << 20);
            std::mem::replace(&mut before, by_lanes(&firewall)) == before
        });
        firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    }
    firewall.router.stop();
}

#[test]
fn lanes_forward_what_leaves_by_a_port_of_theirs() {
    let rules = [RULES, MASQUERADE];
    let Some(firewall) = Firewall::new(Tier::BothAndLanes, "bothlanes", &rules) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    // In the kernel tier alone such packets are Linux's.
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    assert_eq!(firewall.count("linux_not_our_port"), 0);
    assert_eq!(firewall.flows(&["--tier", "lanes"]).len(), 1);
    firewall.router.stop();
}

#[test]
fn packets_are_counted_once_by_both_tiers_or_by_linux() {
    survival::r20_packets_are_counted_once_by_the_tier_or_by_linux(Tier::Both);
}
