//! R7, R8: the end of a connection is Linux's, after megabytes that it did not see.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use fastlane::wire::checksum::checksum;
use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{LEFT_MAC, RIGHT_MAC, eventually, mac};
use serde_json::json;

use super::firewall::{Connected, Firewall, MASQUERADE, RULES, Tier, for_each_tier, transfer};

for_each_tier!(
    r8_a_connection_is_closed_under_a_rule_that_drops_invalid_packets,
    r8_a_close_that_linux_does_not_report_ends_the_flow,
    r8_a_close_that_linux_refuses_does_not_end_the_flow,
    r7_a_reset_passes_linux_and_ends_the_flow,
    r29_the_first_packets_pass_linux_which_clamps_the_segment_size,
);

/// Bytes over the offloaded flow: far more than any window, and 1 GiB in `make soak`.
fn volume() -> usize {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 1 << 30 } else { 48 << 20 }
}

/// Returns packets that the first rule has dropped as invalid.
fn invalid(firewall: &Firewall) -> u64 {
    let rules =
        firewall.routed.router().run(&["nft", "list", "chain", "inet", "firewall", "forward"]);
    let (_, rest) = rules.split_once("ct state invalid counter packets ").expect("the counter");
    rest.split(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// Closes a connection to port 8080: one side closes, the other still sends, then closes too.
#[track_caller]
fn close(firewall: &Firewall, mut tcp: Connected) {
    tcp.near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp.far.read(&mut [0; 16]).unwrap(), 0, "the end of the stream arrives");
    eventually("Linux sees the first FIN", || {
        let listed = firewall.conntrack("-L -p tcp --dport 8080");
        // For Linux a FIN that is sent again, on a busy machine, is that of the other side.
        ["FIN_WAIT", "CLOSE_WAIT", "LAST_ACK"].iter().any(|state| listed.contains(state))
    });
    firewall.wait_until_slow(8080);
    transfer(&mut tcp.far, &mut tcp.near, 1 << 20);
    tcp.far.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp.near.read(&mut [0; 16]).unwrap(), 0);
    eventually("Linux sees the close", || {
        firewall.conntrack("-L -p tcp --dport 8080").contains("TIME_WAIT")
    });
    assert_eq!(invalid(firewall), 0, "packets of the connection were invalid");
}

fn r8_a_connection_is_closed_under_a_rule_that_drops_invalid_packets(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r8", &[RULES, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    transfer(&mut tcp.near, &mut tcp.far, volume());
    transfer(&mut tcp.far, &mut tcp.near, 1 << 20);
    assert!(firewall.conntrack("-L -p tcp --dport 8080").contains("ESTABLISHED"));
    close(&firewall, tcp);
    assert!(firewall.count("linux_tcp_close") >= 1);
    firewall.router.stop();
}

/// Closes a connection whose states Linux does not report, and unmarks another one.
fn r8_a_close_that_linux_does_not_report_ends_the_flow(tier: Tier) {
    let quiet = "iifname \"wire0\" ct event set assured,\"mark\",destroy accept";
    let rules = RULES.replace("iifname \"wire0\" accept", quiet);
    let Some(firewall) = Firewall::new(tier, "quiet", &[&rules, MASQUERADE]) else { return };
    let touched = firewall.statistics()["offload_touched"];
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    // It asks when it prepares the connection, and 200 ms after, unless it has read all anew.
    let fast_since = Instant::now();
    eventually("the slow path does not ask for its state any more", || {
        let has_asked = firewall.statistics()["offload_touched"] >= touched + 2;
        has_asked || fast_since.elapsed() > Duration::from_secs(5)
    });
    transfer(&mut tcp.near, &mut tcp.far, 8 << 20);
    close(&firewall, tcp);
    let mut unmarked = firewall.connect(8082);
    unmarked.exchange(1000);
    firewall.wait_until_fast(8082);
    firewall.mark_of(8082).set(0, 1);
    firewall.wait_until_slow(8082);
    unmarked.exchange(1000);
    firewall.wait_until_fast(8082); // the rule has marked it again
    firewall.router.stop();
}

/// Returns a FIN from a port of the near host to port 8080 of the far one. Its checksum is wrong,
/// so Linux calls it invalid.
fn corrupt_fin(port: u16) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 77, 0, 2, 10, 78, 0, 2];
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut tcp = [port.to_be_bytes(), 8080_u16.to_be_bytes()].concat();
    tcp.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x11, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = [&ip[12..20], &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&(!checksum(&pseudo)).to_be_bytes());
    let ethernet = [&mac(LEFT_MAC)[..], &mac(RIGHT_MAC), &[8, 0]].concat();
    [&ethernet[..], &ip, &tcp].concat()
}

fn r8_a_close_that_linux_refuses_does_not_end_the_flow(tier: Tier) {
    let flows = json!({ "capacity": 1024 });
    let firewall = Firewall::without_offload(tier, "refused", &[RULES, MASQUERADE], flows);
    let Some(mut firewall) = firewall else { return };
    // Flows are visited as often as the shortest timeout requires: each second.
    firewall.routed.set("netfilter/nf_conntrack_udp_timeout", "3");
    firewall.start_offload();
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    let near = &firewall.routed.lab.right;
    let mut wire = near.enter(|| Wire::open("wire0").expect("a raw socket"));
    wire.send(&corrupt_fin(tcp.near.local_addr().unwrap().port()));
    eventually("Linux gets it", || firewall.count("linux_tcp_close") == 1);
    // Others of that direction follow it, until Linux has said twice that it has closed nothing.
    let mut linuxs = || {
        let before = firewall.count("linux_flow_closing");
        transfer(&mut tcp.near, &mut tcp.far, 10_000);
        firewall.count("linux_flow_closing") - before
    };
    // In the kernel tier those of the same CPU do, which may be none.
    assert!(tier.is_kernel() || linuxs() > 0);
    eventually("the flow is fast again", || linuxs() == 0);
    assert_eq!(invalid(&firewall), 1, "Linux has refused it");
    firewall.router.stop();
}

/// Resets a connection to a port after megabytes that Linux did not see. Returns true if Linux has
/// closed its entry, false if the entry has only expired.
fn is_reset_for_linux(firewall: &Firewall, port: u16) -> bool {
    let touched = firewall.statistics()["offload_touched"];
    let mut tcp = firewall.connect(port);
    tcp.exchange(1000);
    firewall.wait_until_fast(port);
    eventually("Linux forgets the acknowledgement that it saw last", || {
        firewall.statistics()["offload_touched"] >= touched + 2
    });
    transfer(&mut tcp.near, &mut tcp.far, 8 << 20);
    // Data that nobody has read makes the close a reset.
    tcp.far.write_all(b"unread").unwrap();
    tcp.near.peek(&mut [0; 6]).unwrap();
    drop(tcp.near);
    let listed = || firewall.conntrack(&format!("-L -p tcp --dport {port}"));
    let mut is_closed = false;
    eventually("Linux sees the reset", || {
        is_closed = listed().contains("CLOSE");
        is_closed || listed().is_empty()
    });
    firewall.wait_until_slow(port);
    assert!(tcp.far.read(&mut [0; 16]).is_err(), "the reset arrives");
    is_closed
}

fn r7_a_reset_passes_linux_and_ends_the_flow(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r7", &[RULES, MASQUERADE]) else { return };
    // Linux expects the reset at the last acknowledgement that it has seen. One that passes it
    // late, as a neighbour is resolved, lets the entry expire in 10 s instead.
    assert!((8080..8083).any(|port| is_reset_for_linux(&firewall, port)), "no reset was taken");
    assert_eq!(invalid(&firewall), 0);
    firewall.router.stop();
}

fn r29_the_first_packets_pass_linux_which_clamps_the_segment_size(tier: Tier) {
    let clamp = "
table inet clamp {
  chain forward {
    type filter hook forward priority -10;
    tcp flags syn tcp option maxseg size set 1000
  }
}";
    let Some(firewall) = Firewall::new(tier, "r29", &[RULES, clamp]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    let sockets = firewall.routed.lab.right.run(&["ss", "-tinH", "dport", "=", ":8080"]);
    let size = sockets.split_whitespace().find_map(|word| word.strip_prefix("mss:"));
    let size: u32 = size.and_then(|size| size.parse().ok()).expect("ss shows it");
    assert!(size <= 1000, "{sockets}");
    let [open, others] = ["linux_tcp_open", "linux_no_flow"].map(|it| firewall.count(it));
    assert!(open >= 2 && others >= 1, "{open} SYNs, {others} others without a flow");
    firewall.router.stop();
}
