//! R10, R16, R22, R23: what Linux no longer allows, or never did, is not fast.

use fastlane_tests::eventually;
use serde_json::json;

use super::firewall::{
    Datagrams, Firewall, MASQUERADE, RULES, Tier, for_each_tier, without_rejudging,
};

for_each_tier!(
    r10_a_deleted_connection_stops_at_once,
    r22_new_rules_judge_established_flows_again,
    r22_new_rules_judge_the_flows_of_a_predecessor,
    r22_rules_for_each_packet_leave_all_to_linux,
    r22_rules_for_each_packet_are_found_without_judging_again,
    r16_a_full_table_refuses_and_has_room_again,
    r23_connections_with_a_helper_are_linuxs,
);

fn r10_a_deleted_connection_stops_at_once(tier: Tier) {
    let rules = [RULES, MASQUERADE];
    let Some(firewall) = Firewall::with(tier, "r10", &rules, without_rejudging()) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    // What is established goes on; a new connection would be dropped.
    firewall.nft("insert rule inet firewall forward ct state new drop");
    udp.assert_exchange();
    firewall.until_forwarded(2, || udp.assert_exchange());
    for what in ["-D -p udp --dport 5353", "-F"] {
        if what == "-F" {
            firewall.nft("flush chain inet firewall forward");
            firewall.nft(
                "add rule inet firewall forward ct state established,related ct mark set 1 accept
                 add rule inet firewall forward iifname \"wire0\" accept",
            );
            udp.assert_exchange();
            firewall.wait_until_fast(5353);
            firewall.nft("insert rule inet firewall forward ct state new drop");
        }
        firewall.conntrack(what);
        firewall.wait_until_slow(5353);
        let before = firewall.count("forwarded");
        assert_eq!(udp.send(), None, "{what}: Linux drops it");
        assert_eq!(firewall.count("forwarded"), before, "{what}");
    }
    firewall.router.stop();
}

/// Returns fast flows to the ports 5353 and 5354.
fn fast_flows(firewall: &Firewall) -> [Datagrams; 2] {
    [5353, 5354].map(|port| {
        let udp = firewall.datagrams(port);
        udp.assert_exchange();
        udp.assert_exchange();
        firewall.wait_until_fast(port);
        udp
    })
}

fn r22_new_rules_judge_established_flows_again(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r22", &[RULES, MASQUERADE]) else { return };
    let [blocked, open] = fast_flows(&firewall);
    // A first start judges all, too.
    let before = firewall.statistics()["offload_rejudged"];
    firewall.nft("insert rule inet firewall forward udp dport 5353 drop");
    // Linux has the rule from here on; the lanes follow.
    eventually("the slow path has seen the new rules", || {
        firewall.statistics()["offload_rejudged"] > before
    });
    assert_eq!(blocked.send(), None, "Linux drops it");
    assert!(firewall.flows(&["--port", "5353"]).is_empty());
    // The other flow is marked and fast again after a packet.
    eventually("the other flow is fast again", || {
        open.assert_exchange();
        !firewall.flows(&["--port", "5354"]).is_empty()
    });
    firewall.nft("flush chain inet firewall forward");
    firewall.nft("add rule inet firewall forward ct mark set ct mark | 1 accept");
    eventually("what is allowed again is fast again", || {
        blocked.exchange().is_some() && !firewall.flows(&["--port", "5353"]).is_empty()
    });
    firewall.router.stop();
}

fn r22_new_rules_judge_the_flows_of_a_predecessor(tier: Tier) {
    let Some(mut firewall) = Firewall::new(tier, "r22-next", &[RULES, MASQUERADE]) else { return };
    let [blocked, open] = fast_flows(&firewall);
    firewall.kill_offload();
    // Nobody hears of the new rule.
    firewall.nft("insert rule inet firewall forward udp dport 5353 drop");
    firewall.start_offload();
    let offload = firewall.offload.as_ref().expect("it runs");
    assert!(offload.stderr().contains("0 flows taken over"), "{}", offload.stderr());
    assert_eq!(blocked.send(), None, "Linux drops it");
    eventually("the other flow is fast again", || {
        open.assert_exchange();
        !firewall.flows(&["--port", "5354"]).is_empty()
    });
    assert!(firewall.flows(&["--port", "5353"]).is_empty());
    firewall.router.stop();
}

/// A limit counts packets that a fast path would not show it.
fn r22_rules_for_each_packet_leave_all_to_linux(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r22-each", &[RULES, MASQUERADE]) else { return };
    let [limited, other] = fast_flows(&firewall);
    // A rule for new connections only concerns no fast packet.
    firewall.nft("insert rule inet firewall forward ct state new limit rate 1000/second accept");
    eventually("both are fast again", || {
        limited.assert_exchange();
        other.assert_exchange();
        !firewall.flows(&["--port", "5353"]).is_empty()
            && !firewall.flows(&["--port", "5354"]).is_empty()
    });
    firewall.nft(
        "insert rule inet firewall forward udp dport 5353 limit rate over 3/minute burst 8 packets \
         drop",
    );
    let why = || firewall.explain("udp 10.77.0.2:4000 10.78.0.2:5353");
    eventually("it is found", || why().starts_with("linux: `limit` in rule "));
    let before = firewall.count("forwarded");
    let passed = (0..12).filter(|_| limited.send().is_some()).count();
    assert!((1..=9).contains(&passed), "{passed} of 12 packets within the limit of 8");
    (0..5).for_each(|_| other.assert_exchange());
    assert_eq!(firewall.count("forwarded"), before, "all are Linux's");
    let offload = firewall.offload.as_ref().expect("it runs");
    assert!(offload.stderr().contains("nothing is fast: `limit` in rule"), "{}", offload.stderr());
    // Behind a rule that accepts established connections it concerns none of their packets.
    firewall.nft("flush chain inet firewall forward");
    firewall.nft(
        "add rule inet firewall forward ct state established,related ct mark set ct mark | 1 accept
         add rule inet firewall forward udp dport 5353 limit rate 3/minute accept
         add rule inet firewall forward accept",
    );
    eventually("both are fast again", || {
        limited.assert_exchange();
        other.assert_exchange();
        !firewall.flows(&["--port", "5353"]).is_empty()
            && !firewall.flows(&["--port", "5354"]).is_empty()
    });
    firewall.until_forwarded(2, || limited.assert_exchange());
    firewall.router.stop();
}

fn r22_rules_for_each_packet_are_found_without_judging_again(tier: Tier) {
    let rules = [RULES, MASQUERADE];
    let Some(firewall) = Firewall::with(tier, "r22-marks", &rules, without_rejudging()) else {
        return;
    };
    let [udp, _] = fast_flows(&firewall);
    firewall.until_forwarded(2, || udp.assert_exchange());
    let why = || firewall.explain("udp 10.77.0.2:4000 10.78.0.2:5353");
    firewall.nft("insert rule inet firewall forward limit rate 1000/second log prefix \"seen\"");
    eventually("the rule is found", || why().starts_with("linux: `limit` in rule "));
    let before = firewall.count("forwarded");
    udp.assert_exchange();
    assert_eq!(firewall.count("forwarded"), before, "it is Linux's");
    firewall.nft("delete table inet firewall");
    // The marks stay.
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.router.stop();
}

fn r16_a_full_table_refuses_and_has_room_again(tier: Tier) {
    let flows = json!({ "capacity": 2 });
    let Some(firewall) = Firewall::with(tier, "r16", &[RULES, MASQUERADE], flows) else { return };
    let mut connections: Vec<_> = (8080..8083).map(|port| firewall.connect(port)).collect();
    for tcp in &mut connections[..2] {
        tcp.exchange(1000);
    }
    firewall.wait_until_fast(8080);
    firewall.wait_until_fast(8081);
    connections[2].exchange(1000);
    eventually("the third is refused", || firewall.statistics()["offload_full"] > 0);
    // It works through Linux, and the others stay.
    connections.iter_mut().for_each(|tcp| tcp.exchange(100_000));
    assert_eq!(firewall.flows(&[]).len(), 2);
    assert!(firewall.flows(&["--port", "8082"]).is_empty());
    drop(connections.remove(0));
    firewall.wait_until_slow(8080);
    firewall.wait_until_fast(8082);
    connections.iter_mut().for_each(|tcp| tcp.exchange(100_000));
    firewall.router.stop();
}

fn r23_connections_with_a_helper_are_linuxs(tier: Tier) {
    let helper = "
table inet helpers {
  ct helper ftp { type \"ftp\" protocol tcp; }
  chain prerouting {
    type filter hook prerouting priority 0;
    tcp dport 2121 ct helper set \"ftp\"
  }
}";
    let Some(firewall) = Firewall::new(tier, "r23", &[RULES, MASQUERADE, helper]) else { return };
    let (mut plain, mut helped) = (firewall.connect(8080), firewall.connect(2121));
    plain.exchange(1000);
    helped.exchange(1000);
    firewall.wait_until_fast(8080);
    helped.exchange(1000);
    assert!(firewall.flows(&["--port", "2121"]).is_empty());
    let port = helped.near.local_addr().unwrap().port();
    let explained = firewall.explain(&format!("tcp 10.77.0.2:{port} 10.78.0.2:2121"));
    assert!(explained.contains("a helper reads its payload"), "{explained}");
    firewall.router.stop();
}
