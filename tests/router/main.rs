//! A router beside Linux, which makes the decisions: the fast path forwards what Linux routes,
//! leaves special cases to Linux and follows its changes immediately.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_tests::routed::{
    Arrival, Counts, FAR, Receivers, Routed, Sender, acl, batch, counters, drop_count, hop_address,
    hop_mac,
};
use fastlane_tests::{
    Application, DropFlag, Host, LEFT_MAC, Mechanism, RIGHT_MAC, binary, eventually, mac,
};
use serde_json::{Value, json};

mod churn;
mod ipv6;
mod lanes;
mod numbers;
mod police;
mod removal;
mod vlan;

const NEAR: [u8; 4] = [10, 77, 0, 2];

/// Mechanisms that share an interface with Linux.
const MECHANISMS: [Mechanism; 2] = [Mechanism::XdpNative, Mechanism::Packet];

/// Waits until packets to an address leave by a next hop, or by none.
#[track_caller]
fn wait_until_left_by(
    sender: &mut Sender,
    receivers: &mut Receivers,
    to: [u8; 4],
    expected: Option<[u8; 6]>,
) {
    eventually(&format!("packets to {to:?} leave by {expected:?}"), || {
        receivers.poll();
        let probe = sender.send(to.into(), 2152);
        std::thread::sleep(Duration::from_millis(20));
        let arrivals = receivers.poll();
        let arrival = arrivals.iter().find(|arrival| arrival.probe.number == probe.number);
        arrival.map(|arrival| arrival.mac) == expected
    });
}

#[track_caller]
fn wait_until_counted(router: &Application, name: &str, mut doing: impl FnMut()) {
    let before = drop_count(router, name);
    eventually(&format!("{name} wait_until_counted"), || {
        doing();
        drop_count(router, name) > before
    });
}

/// Waits until a packet to an address is counted under a reason and none leaves.
#[track_caller]
fn wait_until_dropped(
    router: &Application,
    name: &str,
    sender: &mut Sender,
    receivers: &mut Receivers,
    to: [u8; 4],
) {
    wait_until_left_by(sender, receivers, to, None);
    wait_until_counted(router, name, || {
        sender.send(to.into(), 2152);
    });
    wait_until_left_by(sender, receivers, to, None);
}

/// Waits until the fast path forwards pings to a host in both directions. No ping may be lost.
#[track_caller]
fn wait_until_fast(router: &Application, near: &Host, to: &str) {
    eventually(&format!("pings to {to} are fast"), || {
        let before = drop_count(router, "forwarded");
        near.assert_pings(20, &[to]);
        drop_count(router, "forwarded") >= before + 40
    });
}

#[test]
fn hosts_reach_each_other_and_linux_answers_for_the_router() {
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-hosts") else { return };
        let router = routed.start(mechanism, &[]);
        let near = &routed.lab.right;
        wait_until_fast(&router, near, FAR);
        wait_until_fast(&router, near, "fd78::2");
        // The router's own addresses, on either side of it.
        near.assert_pings(3, &["10.77.0.1"]);
        near.assert_pings(3, &["10.78.0.1"]);
        let words = ["ping", "-c", "1", "-W", "5", "-t", "1", FAR];
        let message = String::from_utf8_lossy(&near.attempt(&words).stdout).into_owned();
        assert!(
            message.contains("10.77.0.1") && message.contains("Time to live exceeded"),
            "{message}"
        );
        let words = ["ping", "-6", "-c", "1", "-W", "5", "-t", "1", "fd78::2"];
        let message = String::from_utf8_lossy(&near.attempt(&words).stdout).into_owned();
        assert!(message.contains("fd77::1") && message.contains("Hop limit"), "{message}");
        let seen = counters(&router, &[]);
        assert!(seen["linux_time_to_live"][0] >= 2, "{mechanism:?}: {seen:?}");
        assert!(seen["linux_local"][0] >= 6, "{mechanism:?}: {seen:?}");
        let totals = router.totals();
        assert_eq!(totals.drops("wire0"), [], "{mechanism:?}: {}", totals.0);
        router.stop();
    }
}

#[test]
fn what_is_too_long_is_linuxs_and_an_mtu_is_followed() {
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-mtu") else { return };
        let router = routed.start(mechanism, &[]);
        let near = &routed.lab.right;
        let long = ["ping", "-M", "do", "-s", "1372", "-c", "1", "-W", "5", FAR];
        near.assert_pings(3, &[FAR]);
        near.run(&long);
        routed.ip("link set wire1 mtu 1300");
        wait_until_counted(&router, "linux_too_long", || {
            near.run(&["ip", "route", "flush", "cache"]);
            let message = near.attempt(&long);
            let message = String::from_utf8_lossy(&message.stdout).into_owned();
            assert!(message.contains("mtu = 1300") || message.contains("1 received"), "{message}");
        });
        let words = ["ping", "-6", "-M", "do", "-s", "1352", "-c", "1", "-W", "5", "fd78::2"];
        let message = String::from_utf8_lossy(&near.attempt(&words).stdout).into_owned();
        assert!(message.contains("Packet too big: mtu=1300"), "{message}");
        routed.ip("link set wire1 mtu 1500");
        eventually("the longer MTU holds", || {
            near.run(&["ip", "route", "flush", "cache"]);
            let before = drop_count(&router, "forwarded");
            near.attempt(&long).status.success() && drop_count(&router, "forwarded") >= before + 2
        });
        router.stop();
    }
}

/// Runs the generator to the far host. Returns the reports of sender and receiver.
fn flood(routed: &Routed, count: u64) -> (Value, Value) {
    let report = |name: &str| routed.lab.file(&format!("{name}.json"));
    let start = |host: &Host, name: &str, wire: &str, more: Value| {
        let mut app = json!({"mode": name, "port": "wire", "run": 7, "count-packets": count,
            "report": report(name), "linger-ms": 3000,
            "flows": {"count": 64, "source-mac": RIGHT_MAC, "destination-mac": LEFT_MAC,
                      "source-address": "10.77.0.2", "destination-address": FAR}});
        for (key, value) in more.as_object().expect("an object") {
            app[key] = value.clone();
        }
        let driver = json!({"af-packet": {"interface": wire, "ring": 16_384}});
        let port = json!({"driver": driver, "steer": [{"udp-port": 2152}]});
        let configuration = json!({"ports": {"wire": port}, "app": app,
            "lanes": {"frames": 32_768}});
        Application::start(&routed.lab, host, &binary("traffic"), configuration)
    };
    let receiver = start(&routed.far, "receive", "wire1", json!({"duration-ms": 60_000}));
    let sending = json!({"rate-packets-per-second": 10_000});
    let sender = start(&routed.lab.right, "send", "wire0", sending);
    let ended = |application: Application| {
        let ended = application.process.wait();
        assert!(ended.status.success(), "{}", ended.stderr);
    };
    ended(sender);
    ended(receiver);
    let read = |name| std::fs::read(report(name)).expect("the report");
    let read = |name| serde_json::from_slice(&read(name)).expect("JSON");
    (read("send"), read("receive"))
}

#[test]
fn a_flow_is_fast_intact_and_counted() {
    const COUNT: u64 = 20_000;
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-flood") else { return };
        let router = routed.start(mechanism, &[]);
        routed.lab.right.assert_pings(3, &[FAR]);
        let before = counters(&router, &["--routes"]);
        let (sent, received) = flood(&routed, COUNT);
        let after = counters(&router, &["--routes"]);
        assert_eq!(sent["sent"]["packets"], COUNT);
        for key in ["lost-packets", "duplicated-packets", "corrupted-packets", "reordered-packets"]
        {
            assert_eq!(received["received"][key], 0, "{mechanism:?}: {received}");
        }
        let of =
            |seen: &BTreeMap<String, [u64; 2]>, name: &str| seen.get(name).map_or(0, |it| it[0]);
        let rose = |name: &str| of(&after, name) - of(&before, name);
        assert!((COUNT..COUNT + 100).contains(&rose("forwarded")), "{before:?} {after:?}");
        let routes = |seen: &BTreeMap<String, [u64; 2]>| {
            let routes = seen.iter().filter(|(name, _)| name.starts_with("route-"));
            routes.map(|(_, [packets, _])| packets).sum::<u64>()
        };
        // Every forwarded packet was counted under one route.
        assert_eq!(routes(&after), after["forwarded"][0]);
        router.stop();
    }
}

/// Returns a memif port whose path into Linux is a TAP with this address.
fn over_memif(routed: &Routed, role: &str, address: &str, rules: Value) -> Value {
    let socket = routed.lab.file("peer.memif");
    json!({"driver": {"memif": {"socket": socket, "role": role}}, "steer": rules,
        "kernel": {"tap": {"name": "owned0", "addresses": [address]}}})
}

#[test]
fn a_device_that_linux_does_not_have_is_the_tap_that_stands_for_it() {
    let Some(routed) = Routed::new("router-owned") else { return };
    let ip = json!([{"ethertype": "ipv4"}, {"ethertype": "ipv6"}]);
    let shared = json!({"driver": Mechanism::Packet.on("wire0"), "steer": ip.clone()});
    let owned = over_memif(&routed, "server", "10.80.0.1/24", ip);
    let router = routed.start(Mechanism::Packet, &[("ports", json!({"a": shared, "b": owned}))]);
    // Beyond it macswap, which leaves all of this to its Linux.
    let beyond = over_memif(&routed, "client", "10.80.0.2/24", json!([{"udp-port": 2152}]));
    let beyond = json!({"ports": {"wire": beyond}});
    let far = Application::start(&routed.lab, &routed.far, &binary("macswap"), beyond);
    routed.far.run(&["ip", "route", "add", "10.77.0.0/24", "via", "10.80.0.1"]);
    router.process.wait_for("port `b`: link up");
    let near = &routed.lab.right;
    eventually("the first answer comes", || near.ping(&["10.80.0.2"]));
    wait_until_fast(&router, near, "10.80.0.2");
    // The peer goes: so does its link, and the way to it.
    far.stop();
    eventually("packets to it are Linux's", || {
        let before = drop_count(&router, "forwarded");
        let _ = near.attempt(&["ping", "-c", "2", "-i", "0.02", "-W", "0.1", "10.80.0.2"]);
        drop_count(&router, "forwarded") == before
    });
    router.stop();
}

#[test]
fn what_linux_changes_holds_at_once() {
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-changes") else { return };
        routed.add_hops();
        for hop in 0..4 {
            routed.ip(&format!("route add 10.10{hop}.0.0/16 via {}", hop_address(hop)));
        }
        let router = routed.start(mechanism, &[]);
        let mut receivers = Receivers::open(&routed.far);
        let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
        let (sender, receivers) = (&mut sender, &mut receivers);
        for hop in 0..4_u8 {
            let mac = mac(&hop_mac(hop.into()));
            wait_until_left_by(sender, receivers, [10, 100 + hop, 1, 1], Some(mac));
        }
        // Another next hop, and a longer prefix.
        routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(3)));
        wait_until_left_by(sender, receivers, [10, 100, 1, 1], Some(mac(&hop_mac(3))));
        routed.ip(&format!("route add 10.100.7.0/24 via {}", hop_address(1)));
        wait_until_left_by(sender, receivers, [10, 100, 7, 1], Some(mac(&hop_mac(1))));
        wait_until_left_by(sender, receivers, [10, 100, 8, 1], Some(mac(&hop_mac(3))));
        routed.ip("route del 10.100.7.0/24");
        wait_until_left_by(sender, receivers, [10, 100, 7, 1], Some(mac(&hop_mac(3))));
        // A blackhole, and an address of the router.
        routed.ip("route add blackhole 10.100.9.0/24");
        wait_until_dropped(&router, "linux_blackhole", sender, receivers, [10, 100, 9, 1]);
        routed.ip("address add 10.100.10.1/32 dev lo");
        wait_until_dropped(&router, "linux_local", sender, receivers, [10, 100, 10, 1]);
        routed.lab.right.run(&["ping", "-c", "1", "-W", "5", "10.100.10.1"]);
        routed.ip("address del 10.100.10.1/32 dev lo");
        wait_until_left_by(sender, receivers, [10, 100, 10, 1], Some(mac(&hop_mac(3))));
        // A neighbour that has another Ethernet address now.
        let other = "02:00:00:00:bb:01";
        let words = format!("neigh replace {} lladdr {other} dev wire1", hop_address(1));
        routed.ip(&format!("{words} nud permanent"));
        wait_until_left_by(sender, receivers, [10, 101, 1, 1], Some(mac(other)));
        // A link that is down, and comes up again; Linux has forgotten its routes.
        routed.ip("link set wire2 down");
        wait_until_left_by(sender, receivers, [10, 102, 1, 1], None);
        wait_until_left_by(sender, receivers, [10, 101, 1, 1], Some(mac(other)));
        routed.ip("link set wire2 up");
        routed.ip(&format!("route add 10.102.0.0/16 via {}", hop_address(2)));
        routed.add_hops();
        wait_until_left_by(sender, receivers, [10, 102, 1, 1], Some(mac(&hop_mac(2))));
        router.stop();
    }
}

#[test]
fn linux_says_whether_there_is_forwarding_and_what_sources_are_believed() {
    let Some(routed) = Routed::new("router-policy") else { return };
    routed.add_hops();
    routed.ip(&format!("route add 10.100.0.0/16 via {}", hop_address(0)));
    let router = routed.start(Mechanism::Packet, &[]);
    let mut receivers = Receivers::open(&routed.far);
    let sender = |from| Sender::new(&routed.lab.right, from, Instant::now());
    let (mut near, to) = (sender(NEAR), [10, 100, 1, 1]);
    wait_until_left_by(&mut near, &mut receivers, to, Some(mac(&hop_mac(0))));
    routed.set("ipv4/conf/wire0/forwarding", "0");
    wait_until_dropped(&router, "linux_forwarding_off", &mut near, &mut receivers, to);
    routed.set("ipv4/conf/wire0/forwarding", "1");
    wait_until_left_by(&mut near, &mut receivers, to, Some(mac(&hop_mac(0))));
    // From somewhere that is not there, from the other side, from the router itself.
    let mut stranger = sender([192, 0, 2, 9]);
    let mut other_side = sender([10, 79, 0, 11]);
    let mut itself = sender([10, 78, 0, 1]);
    let hop = Some(mac(&hop_mac(0)));
    wait_until_left_by(&mut stranger, &mut receivers, to, hop);
    wait_until_left_by(&mut other_side, &mut receivers, to, hop);
    wait_until_dropped(&router, "linux_own_source", &mut itself, &mut receivers, to);
    routed.set("ipv4/conf/wire0/rp_filter", "2");
    wait_until_left_by(&mut stranger, &mut receivers, to, None);
    wait_until_left_by(&mut other_side, &mut receivers, to, hop);
    routed.set("ipv4/conf/wire0/rp_filter", "1");
    wait_until_dropped(&router, "linux_reverse_path", &mut other_side, &mut receivers, to);
    wait_until_left_by(&mut near, &mut receivers, to, hop);
    // Martians, whatever is set.
    for from in [[127, 0, 0, 1], [0, 1, 2, 3], [224, 0, 0, 1], [255; 4]] {
        wait_until_dropped(&router, "linux_source", &mut sender(from), &mut receivers, to);
    }
    router.stop();
}

#[test]
fn several_ways_share_flows_by_their_weights() {
    let Some(routed) = Routed::new("router-ecmp") else { return };
    routed.add_hops();
    routed.without_ipv6();
    let way = |hop, weight| format!("nexthop via {} weight {weight}", hop_address(hop));
    routed.ip(&format!("route add 10.100.0.0/16 {} {}", way(0, 1), way(2, 3)));
    let router = routed.start(Mechanism::XdpNative, &[]);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
    let to = IpAddr::from([10, 100, 1, 1]);
    let flows = 1000..5000_u16;
    let before = Counts::of(&routed, &router);
    sender.send_all(flows.clone().map(|port| (to, port)));
    sender.send_all(flows.clone().map(|port| (to, port)));
    let arrivals = receivers.receive(8000);
    let lost = before.account(&routed, &router, sender.accepted(), arrivals.len() as u64);
    assert!(arrivals.len() > 7900, "{} of {}: {lost:?}", arrivals.len(), sender.accepted());
    let mut next_hops: BTreeMap<u16, [u8; 6]> = BTreeMap::new();
    for Arrival { probe, mac, .. } in &arrivals {
        assert_eq!(*next_hops.entry(probe.port).or_insert(*mac), *mac, "one flow, one way");
    }
    let share = |hop| next_hops.values().filter(|way| **way == mac(&hop_mac(hop))).count();
    println!("of {} flows {} and {} by the weights 1 and 3", next_hops.len(), share(0), share(2));
    // Six standard deviations of a fair choice.
    assert!(share(0).abs_diff(1000) < 165, "{} of {}", share(0), next_hops.len());
    assert_eq!(share(0) + share(2), next_hops.len());
    router.stop();
}

#[test]
fn a_list_says_who_may_and_is_exchanged_as_a_whole() {
    let Some(routed) = Routed::new("router-acl") else { return };
    routed.add_hops();
    // Where all is dropped that no rule permits, what IPv6 says of its own accord is, too.
    routed.without_ipv6();
    routed.ip(&format!("route add 10.100.0.0/16 via {}", hop_address(0)));
    let router = routed.start(Mechanism::XdpNative, &[]);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
    let address = [10, 100, 1, 1];
    let to = IpAddr::from(address);
    wait_until_left_by(&mut sender, &mut receivers, address, Some(mac(&hop_mac(0))));
    acl(&router, "add", &["10", "drop", "udp", "to", "10.100.0.0/16", "port", "2152"]);
    wait_until_left_by(&mut sender, &mut receivers, address, None);
    // The near host's own ping is none of this rule's, but one more stops it.
    routed.lab.right.run(&["ping", "-c", "1", "-W", "5", FAR]);
    acl(&router, "add", &["20", "drop", "icmp", "from", "10.77.0.0/24"]);
    let ping = routed.lab.right.attempt(&["ping", "-c", "1", "-W", "1", FAR]);
    assert!(!ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    // What is for the router itself is not forwarded.
    routed.lab.right.run(&["ping", "-c", "1", "-W", "5", "10.77.0.1"]);
    // Nor does what would be Linux's get past it.
    let words = ["ping", "-c", "1", "-W", "1", "-t", "1", FAR];
    let message = String::from_utf8_lossy(&routed.lab.right.attempt(&words).stdout).into_owned();
    assert!(!message.contains("exceeded"), "{message}");
    let list = acl(&router, "list", &[]);
    assert!(list.contains("10 drop udp to 10.100.0.0/16 port 2152 # "), "{list}");
    assert!(list.contains("20 drop icmp from 10.77.0.0/24 # 2 packets"), "{list}");
    acl(&router, "delete", &["10"]);
    wait_until_left_by(&mut sender, &mut receivers, address, Some(mac(&hop_mac(0))));
    // Both lists permit the packet, each by another place; of the one and the other half, neither.
    let nobody = "drop tcp from 192.0.2.1/32 to any port 9";
    let permit = "permit udp to 10.100.0.0/16 port 2152";
    let one = batch(
        &routed.lab,
        "a",
        &["default drop".to_owned(), format!("1 {nobody}"), format!("2 {permit}")],
    );
    let other = batch(
        &routed.lab,
        "b",
        &["default drop".to_owned(), format!("1 {permit}"), format!("2 {nobody}")],
    );
    let before = drop_count(&router, "drop_acl");
    let done = AtomicBool::new(false);
    acl(&router, "load", &[one.to_str().expect("text")]);
    receivers.poll();
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                sender.send_all((0..100).map(|_| (to, 2152)));
                sent += 100;
            }
            sent
        });
        let end = DropFlag(&done);
        for flip in 0..100 {
            let file = if flip % 2 == 0 { &other } else { &one };
            acl(&router, "load", &[file.to_str().expect("text")]);
        }
        drop(end);
        sender.join().expect("it does not panic")
    });
    println!("{sent} packets under 100 exchanges");
    assert!(sent > 0, "nothing was judged");
    assert_eq!(drop_count(&router, "drop_acl"), before, "packets dropped by a mixed list");
    router.stop();
}
