//! The kernel tier beside Linux and lanes: what only it does.

use std::time::Duration;

use fastlane::flow_tier::{InterfaceKind, KernelTier, TierHook, TierPort, XdpMode};
use fastlane_tests::eventually;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier};

/// Clock ticks per second in /proc (`USER_HZ`).
const TICKS: u64 = 100;

#[test]
fn no_lane_burns_a_cpu() {
    let Some(firewall) = Firewall::new(Tier::Kernel, "idle", &[RULES, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    let before = firewall.router.process.cpu_ticks();
    let forwarded = firewall.count("forwarded");
    for _ in 0..20 {
        tcp.exchange(1 << 18);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(firewall.count("forwarded") > forwarded + 1000);
    let used = firewall.router.process.cpu_ticks() - before;
    assert!(used < TICKS / 10, "the router used {used} ticks while the kernel tier forwarded");
    firewall.router.stop();
}

#[test]
fn the_tier_is_removed_on_request_and_linux_goes_on() {
    let Some(mut firewall) = Firewall::new(Tier::Kernel, "remove", &[RULES, MASQUERADE]) else {
        return;
    };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    let shows = |firewall: &Firewall| {
        firewall.routed.router().run(&["ip", "link", "show", "wire0"]).contains("prog/xdp")
    };
    firewall.kill_offload();
    assert!(shows(&firewall), "the pins hold the program");
    let ended = firewall.offload_with(&["--remove"]).wait();
    assert!(ended.status.success() && ended.stdout.contains("removed"), "{ended:?}");
    eventually("the program is detached", || !shows(&firewall));
    tcp.exchange(1 << 20);
    firewall.start_offload();
    assert!(shows(&firewall));
    firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    firewall.router.stop();
}

#[test]
fn a_connection_after_a_restart_is_not_taken_for_one_that_was_closed() {
    let Some(mut firewall) = Firewall::new(Tier::Kernel, "serials", &[RULES]) else { return };
    let mut first = firewall.connect(8080);
    first.exchange(1000);
    firewall.wait_until_fast(8080);
    firewall.until_forwarded(500, || first.exchange(1 << 20));
    drop(first);
    firewall.wait_until_slow(8080);
    firewall.kill_offload();
    firewall.start_offload();
    // It gets the entries of the first one.
    let mut second = firewall.connect(8081);
    second.exchange(1000);
    firewall.wait_until_fast(8081);
    assert_eq!(firewall.flows(&["--state", "closing"]), Vec::<String>::new());
    firewall.until_forwarded(500, || second.exchange(1 << 20));
    firewall.router.stop();
}

/// Creates `wire1` anew, with the XDP program of another tier, which ends with the returned value.
#[track_caller]
fn occupy_wire1(firewall: &Firewall) -> KernelTier {
    firewall.routed.ip("link del wire1");
    firewall.routed.ip("link add spare type veth peer spare-far");
    let shown = firewall.routed.router().run(&["ip", "-o", "link", "show", "spare"]);
    let (index, _) = shown.split_once(':').expect("an index");
    let port = TierPort {
        interface: "spare".to_owned(),
        index: index.parse().expect("a number"),
        mac: [2, 0, 0, 0, 0, 1],
        zone: 0,
        hook: Some(TierHook::Xdp(XdpMode::Generic)),
        kind: InterfaceKind::Device,
        forwards_back: false,
        takes_ipv6: true,
        is_closed: false,
        has_lanes: false,
    };
    let other = firewall.routed.router().enter(|| {
        let mut other = KernelTier::load(16).expect("a program");
        other.attach(&port).expect("nobody has it");
        other
    });
    firewall.routed.ip("link set spare name wire1");
    other
}

#[test]
fn a_port_that_cannot_be_attached_does_not_keep_others_from_being_followed() {
    let masquerade = MASQUERADE.replace("wire1", "wire2");
    let rules = [RULES, &masquerade];
    let Some(firewall) = Firewall::new(Tier::Kernel, "busy", &rules) else { return };
    let udp = firewall.datagrams_at("10.79.0.2:5353".parse().expect("an address"));
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || udp.assert_exchange());
    let other = occupy_wire1(&firewall);
    let stderr = || firewall.offload.as_ref().expect("it runs").stderr();
    let busy = "another XDP program is attached to `wire1`";
    eventually("the slow path notices it", || stderr().contains(busy));
    // `wire2` comes after it.
    let discipline = "qdisc replace dev wire2 root tbf rate 100mbit burst 100k latency 50ms";
    let words = ["tc"].into_iter().chain(discipline.split(' '));
    firewall.routed.router().run(&words.collect::<Vec<_>>());
    eventually("what leaves is Linux's", || {
        let before = firewall.count("linux_not_our_port");
        udp.assert_exchange();
        firewall.count("linux_not_our_port") > before
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(stderr().matches(busy).count(), 1, "it is said once");
    drop(other);
    eventually("the program is on it", || {
        let shown = firewall.routed.router().run(&["ip", "link", "show", "wire1"]);
        shown.contains("prog/xdp") && !shown.contains("xdpgeneric")
    });
    firewall.router.stop();
}

#[test]
fn packets_are_linuxs_while_a_rule_selects_them_by_mark() {
    let Some(firewall) = Firewall::new(Tier::Kernel, "rules", &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let is_fast = || firewall.until_forwarded(2, || udp.assert_exchange());
    is_fast();
    // A rule by what the program's lookup knows.
    firewall.routed.ip("rule add from 10.77.0.0/24 iif wire0 lookup main");
    is_fast();
    let rule = "fwmark 0x1/0x1 lookup 100";
    firewall.nft(
        "table inet marks {
           chain prerouting {
             type filter hook prerouting priority -100;
             iifname \"wire0\" meta mark set 1
           }
         }",
    );
    is_fast(); // the rules have judged it again
    // Linux sends them elsewhere from now on.
    firewall.routed.ip("route add blackhole default table 100");
    firewall.routed.ip(&format!("rule add {rule}"));
    eventually("the table of the rule holds", || udp.send().is_none());
    assert!(firewall.count("linux_not_our_port") > 0);
    let stderr = firewall.offload.as_ref().expect("it runs").stderr();
    assert!(stderr.contains("a routing rule selects packets by mark"), "{stderr}");
    firewall.routed.ip(&format!("rule del {rule}"));
    firewall.until_forwarded(2, || {
        let _ = udp.exchange();
    });
    firewall.router.stop();
}

fn a_recreated_interface_joins_again(tier: Tier, story: &str) {
    let Some(firewall) = Firewall::new(tier, story, &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.routed.ip("link del wire1");
    assert_eq!(udp.send(), None, "there is no link");
    firewall.routed.join("wire1", 1);
    if tier == Tier::Kernel {
        firewall.routed.far.run(&["ethtool", "-K", "wire1", "gro", "on", "tx", "off"]);
    }
    // Its route is back, and the program is on the new interface.
    firewall.until_forwarded(2, || {
        let _ = udp.exchange();
    });
    firewall.router.stop();
}

#[test]
fn a_recreated_interface_joins_the_tier_again() {
    a_recreated_interface_joins_again(Tier::Kernel, "again");
}

#[test]
fn a_recreated_interface_joins_the_tier_again_at_its_ingress() {
    a_recreated_interface_joins_again(Tier::Ingress, "ingressnew");
}

#[test]
fn packets_to_a_port_of_lanes_are_linuxs() {
    let Some(firewall) = Firewall::new(Tier::Mixed, "mixed", &[RULES, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    let before = firewall.count("linux_not_our_port");
    tcp.exchange(1 << 20);
    assert!(firewall.count("linux_not_our_port") > before + 500);
    firewall.router.stop();
}

#[test]
fn flows_by_an_interface_that_does_not_transmit_are_linuxs() {
    let Some(firewall) = Firewall::new(Tier::Kernel, "mute", &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.routed.far.run(&["ethtool", "-K", "wire1", "gro", "off"]);
    eventually("the slow path notices it", || {
        let _ = udp.exchange();
        firewall.count("linux_not_our_port") > 0
    });
    udp.assert_exchange();
    let offload = firewall.offload.as_ref().expect("it runs");
    let message = "flows by `wire1` are left to Linux: it does not transmit redirected frames";
    assert!(offload.stderr().contains(message), "{}", offload.stderr());
    firewall.routed.far.run(&["ethtool", "-K", "wire1", "gro", "on"]);
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.router.stop();
}

/// The loader's access to a table tries what the kernel can, by programs and tables of its own, for
/// whose ends everyone waits who removes an interface. Tools may run many times a second.
#[test]
fn counters_are_read_without_making_a_table() {
    let Some(firewall) = Firewall::new(Tier::Kernel, "reads", &[RULES]) else { return };
    let made_by = |command: &dyn Fn()| {
        let made = (0..20).map(|_| {
            let first = firewall.next_table();
            command();
            firewall.next_table() - first
        });
        made.min().expect("some") // other stories make tables too
    };
    let usual = made_by(&|| ());
    let with_counters = made_by(&|| {
        firewall.count("forwarded");
    });
    assert_eq!(with_counters, usual, "numbers of tables from one to the next");
    firewall.router.stop();
}
