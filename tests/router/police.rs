//! Rules that police, and lists that are longer than any that could be compared rule by rule.

use std::net::IpAddr;
use std::process::Command;
use std::time::Instant;

use fastlane_tests::routed::{
    Receivers, Routed, Sender, acl, batch, drop_count, hop_address, hop_mac,
};
use fastlane_tests::{Application, Mechanism, binary, eventually, mac};
use serde_json::json;

use super::{NEAR, wait_until_left_by};

/// Returns the numbers of a rule in `router acl list`: packets and bytes, then of each colour.
fn numbers(router: &Application, priority: &str) -> Vec<u64> {
    let list = acl(router, "list", &[]);
    let line = list.lines().find(|line| line.starts_with(&format!("{priority} ")));
    let (_, numbers) = line.expect("the rule").split_once(" # ").expect("its numbers");
    numbers.split([' ', ',']).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_rule_polices_by_colour_and_counts_each() {
    let Some(routed) = Routed::new("router-police") else { return };
    routed.add_hops();
    routed.ip(&format!("route add 10.100.0.0/16 via {}", hop_address(0)));
    let tables = json!({"causes": {"capacity": 64}, "routes": {"capacity": 32_800},
                        "acl": {"capacity": 1024}, "police": {"capacity": 1}});
    let changes = [("tables", tables), ("app", json!({"acl": true, "police": true}))];
    let router = routed.start(Mechanism::Packet, &changes);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
    let address = [10, 100, 1, 1];
    let to = IpAddr::from(address);
    wait_until_left_by(&mut sender, &mut receivers, address, Some(mac(&hop_mac(0))));
    acl(&router, "add", &["10", "permit", "udp", "to", "10.100.0.0/16", "port", "2152"]);
    receivers.receive_all();
    sender.send(to, 2152);
    assert_eq!(receivers.receive(1).len(), 1);
    let [1, octets] = numbers(&router, "10")[..] else { panic!("{:?}", numbers(&router, "10")) };

    // A byte a second: no packet's worth of tokens comes back while the test runs.
    let [three, two] = [3, 2].map(|packets| (packets * octets).to_string());
    let rule = ["10", "police", "8bit", &three, "excess", &two, "udp", "to", "10.100.0.0/16"];
    acl(&router, "add", &rule);
    sender.send_all((0..10).map(|_| (to, 2152)));
    assert_eq!(receivers.receive(5).len(), 5, "three are green, two yellow");
    eventually("red packets are dropped", || drop_count(&router, "drop_acl_police") == 5);
    assert_eq!(receivers.poll().len(), 0);
    let colours = [10, 10 * octets, 3, 3 * octets, 2, 2 * octets, 5, 5 * octets];
    assert_eq!(numbers(&router, "10"), colours);

    // A rule that does not change keeps its meter; others are refused one.
    acl(&router, "add", &["20", "drop", "tcp", "from", "192.0.2.0/24"]);
    sender.send(to, 2152);
    eventually("its buckets are still empty", || drop_count(&router, "drop_acl_police") == 6);
    let mut command = Command::new(binary("router"));
    let command = command.args(["acl", "add"]).arg(router.session());
    let refused = command.args(["30", "police", "1mbit", "1500"]).output().expect("router starts");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("all 1 meters are in use"), "{message}");

    // Two rates: both buckets are full again, for this is another rule.
    let rule = ["10", "police", "8bit", &two, "peak", "16bit", &three, "udp"];
    acl(&router, "add", &rule);
    sender.send_all((0..5).map(|_| (to, 2152)));
    assert_eq!(receivers.receive(3).len(), 3, "two are green, one yellow");
    eventually("the others are red", || drop_count(&router, "drop_acl_police") == 8);
    assert_eq!(numbers(&router, "10")[2..], [2, 2 * octets, 1, octets, 2, 2 * octets]);
    assert!(acl(&router, "list", &[]).contains(&format!("peak 16bit {three} udp # ")));
    router.stop();
}

#[test]
fn a_list_of_thousands_decides_by_its_first_rule() {
    const RULES: u32 = 2000;
    let Some(routed) = Routed::new("router-long-list") else { return };
    routed.add_hops();
    // Where all is dropped that no rule permits, what IPv6 says of its own accord is, too.
    routed.without_ipv6();
    routed.ip(&format!("route add 10.100.0.0/16 via {}", hop_address(0)));
    let router = routed.start(Mechanism::Packet, &[]);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
    wait_until_left_by(&mut sender, &mut receivers, [10, 100, 1, 1], Some(mac(&hop_mac(0))));
    // Each even host is dropped, then all of its network is permitted, and nothing else is.
    let host = |number: u32| format!("10.100.{}.{}", number / 256, number % 256);
    let drops = (0..RULES).map(|number| format!("{number} drop udp to {}", host(2 * number)));
    let rest = ["default drop".to_owned(), format!("{RULES} permit to 10.100.0.0/16")];
    let lines: Vec<String> = drops.chain(rest).collect();
    let file = batch(&routed.lab, "long", &lines);
    acl(&router, "load", &[file.to_str().expect("text")]);
    receivers.receive_all();
    let before = drop_count(&router, "drop_acl");
    for number in [0, 1, 777, 1998, 1999, 2000, 2 * RULES - 2, 2 * RULES - 1, 2 * RULES] {
        let is_dropped = number % 2 == 0 && number < 2 * RULES;
        let to: IpAddr = host(number).parse().expect("an address");
        let dropped = drop_count(&router, "drop_acl");
        sender.send(to, 2152);
        if is_dropped {
            eventually("it is dropped", || drop_count(&router, "drop_acl") > dropped);
        } else {
            assert_eq!(receivers.receive(1).len(), 1, "{to}");
        }
    }
    assert!(drop_count(&router, "drop_acl") >= before + 4);
    assert_eq!(numbers(&router, "999")[0], 1);
    router.stop();
}

#[test]
fn rules_are_counted_that_came_when_all_counters_were_in_use() {
    const RULES: usize = 4;
    let Some(routed) = Routed::new("router-counted") else { return };
    routed.add_hops();
    routed.ip(&format!("route add 10.100.0.0/16 via {}", hop_address(0)));
    let tables = json!({"causes": {"capacity": 64}, "routes": {"capacity": 32_800},
                        "acl": {"capacity": RULES}});
    let router =
        routed.start(Mechanism::Packet, &[("tables", tables), ("app", json!({"acl": true}))]);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
    let address = [10, 100, 1, 1];
    wait_until_left_by(&mut sender, &mut receivers, address, Some(mac(&hop_mac(0))));
    receivers.receive_all();
    // Each list has other rules, of which the last one permits the packets.
    for list in 0..3 {
        let rule = |number: usize| match number + 1 == RULES {
            true => format!("{} permit udp to 10.100.0.0/16 port 2152", 10 * list + number),
            false => format!("{} drop tcp from 192.0.2.{number}", 10 * list + number),
        };
        let rules: Vec<String> = (0..RULES).map(rule).collect();
        let file = batch(&routed.lab, &list.to_string(), &rules);
        acl(&router, "load", &[file.to_str().expect("text")]);
        sender.send_all((0..5).map(|_| (IpAddr::from(address), 2152)));
        assert_eq!(receivers.receive(5).len(), 5);
        let numbers = numbers(&router, &(10 * list + RULES - 1).to_string());
        assert_eq!(numbers[0], 5, "list {list}: {numbers:?}");
    }
    router.stop();
}
