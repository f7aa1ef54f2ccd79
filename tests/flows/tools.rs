//! The commands that show flows to people.

use std::process::{Command, Stdio};

use fastlane_tests::{Process, binary, eventually};
use serde_json::json;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier, for_each_tier};

for_each_tier!(flows_are_selected_followed_and_explained,);

fn flows_are_selected_followed_and_explained(tier: Tier) {
    let Some(mut firewall) = Firewall::new(tier, "tools", &[RULES, MASQUERADE]) else { return };
    let mut follow = Command::new(binary("router"));
    follow.arg("flows").arg(firewall.router.session()).args(["--follow", "--port", "8080"]);
    let follower = Process::start(follow);
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(8080);
    firewall.wait_until_fast(5353);
    assert_eq!(firewall.flows(&[]).len(), 2);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.until_forwarded(2, || udp.assert_exchange());
    for (words, count) in [
        (&["--address", "10.77.0.2"][..], 2), // before translation
        (&["--address", "10.78.0.1"], 2),     // after it
        (&["--address", "10.78.0.9"], 0),
        (&["--port", "5353"], 1),
        (&["--state", "open"], 2),
        (&["--state", "closing"], 0),
        (&["--state", "open", "--port", "8080", "--address", "10.78.0.2"], 1),
        (&["--tier", firewall.tier_name()], 2),
        (&["--tier", if tier == Tier::Lanes { "kernel" } else { "lanes" }], 0),
    ] {
        assert_eq!(firewall.flows(words).len(), count, "{words:?}");
    }
    eventually("the flow is shown", || follower.stdout().contains("+ tcp 10.77.0.2:"));
    let port = tcp.near.local_addr().unwrap().port();
    let explain = format!("tcp 10.77.0.2:{port} 10.78.0.2:8080");
    let explained = firewall.explain(&explain);
    let wanted = format!("{}: tcp 10.77.0.2:{port} > ", firewall.tier_name());
    assert!(explained.starts_with(&wanted), "{explained}");
    assert!(explained.contains("ESTABLISHED"), "{explained}");
    let explained = firewall.explain("tcp 10.77.0.2:1 10.78.0.2:2");
    assert_eq!(explained, "linux: it tracks no such connection\n");
    drop(tcp);
    eventually("its end is shown", || follower.stdout().contains("- tcp 10.77.0.2:"));
    assert!(!follower.stdout().contains("udp"), "{}", follower.stdout());
    // The slow path dies: that is the reason from the end of the grace time on.
    firewall.kill_offload();
    let udp_port = udp.near.local_addr().unwrap().port();
    eventually("it is explained", || {
        let explained = firewall.explain(&format!("udp 10.77.0.2:{udp_port} 10.78.0.2:5353"));
        explained.starts_with("linux: `router offload` does not run: udp 10.77.0.2:")
    });
    firewall.router.stop();
}

#[test]
fn a_flow_that_is_not_in_the_table_of_the_kernel_tier_is_explained() {
    let Some(firewall) = Firewall::new(Tier::Kernel, "noroom", &[RULES]) else { return };
    assert_eq!(firewall.statistics()["offload_tier_full"], 0);
    let udp = firewall.datagrams(5353);
    let from = udp.source();
    firewall.wait_until_fast(5353);
    let words = format!("udp {from} {}", udp.to);
    assert!(firewall.explain(&words).starts_with("kernel: udp"));
    // As if it had found no slot, which takes more flows than a test can make.
    firewall.clear_kernel_table();
    assert!(firewall.flows(&["--port", "5353"]).len() == 1, "it is in the table of lanes");
    let explained = firewall.explain(&words);
    assert!(explained.starts_with("linux: the table of the kernel tier"), "{explained}");
    firewall.router.stop();
}

#[test]
fn flows_are_followed_from_before_the_kernel_tier_begins() {
    let Some(mut firewall) = Firewall::without_offload(Tier::Kernel, "early", &[RULES], json!({}))
    else {
        return;
    };
    let mut follow = Command::new(binary("router"));
    follow.arg("flows").arg(firewall.router.session()).args(["--follow", "--tier", "kernel"]);
    let follower = Process::start(follow);
    let maps = format!("/proc/{}/maps", follower.id());
    eventually("it has the tables", || {
        std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("flows"))
    });
    firewall.start_offload();
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || udp.assert_exchange());
    eventually("the flow is shown", || follower.stdout().contains(" kernel\n"));
    firewall.router.stop();
}

#[test]
fn a_reader_that_leaves_ends_the_list() {
    let Some(firewall) = Firewall::new(Tier::Lanes, "reader", &[RULES]) else { return };
    let mut follow = Command::new(binary("router"));
    follow.arg("flows").arg(firewall.router.session()).arg("--follow");
    let mut follower = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(follower.stdout.take());
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let output = follower.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    firewall.router.stop();
}

#[test]
fn what_contradicts_flows_is_refused_with_the_remedy() {
    let Some(firewall) = Firewall::new(Tier::Lanes, "refused", &[RULES]) else { return };
    for (setting, reason) in [
        ("app.acl=true", "write it as nftables rules"),
        ("app.flows.mask=0", "at least one bit of `ct mark`"),
        ("app.flows.mark=2", "it must have bits of `mask`"),
        ("app.flows.capacity=0", "1 to 268435456 flows"),
        ("app.flows.zones={\"wire9\":1}", "wire9"),
        ("ports.wire0={\"driver\":{\"memory\":{}},\"tier\":\"kernel\"}", "the driver af-xdp"),
    ] {
        let (status, stderr) = firewall.start_another(setting);
        assert!(status != Some(0) && stderr.contains(reason), "{setting}: {stderr}");
    }
    firewall.router.stop();
}
