//! Routes are counted under numbers, which are used again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;
use std::time::Instant;

use fastlane_tests::routed::{Receivers, Routed, Sender, drop_count, hop_address};
use fastlane_tests::{Application, Mechanism, binary, eventually};
use serde_json::json;

use super::NEAR;

/// Returns the number of the route of each destination and its packet count.
fn by_destination(router: &Application) -> BTreeMap<IpAddr, (String, u64)> {
    let mut command = Command::new(binary("router"));
    let output = command.arg("counters").arg(router.session()).arg("--routes").output();
    let message = String::from_utf8(output.expect("router can be started").stdout).expect("text");
    let routes = message.lines().filter(|line| line.starts_with("route-"));
    let parse = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (packets, to) = (words[1].parse().expect("a number"), words[3]);
        (to.parse().expect("an address"), (words[0].to_owned(), packets))
    };
    routes.map(parse).collect()
}

#[test]
fn a_route_counts_its_own_packets_also_under_a_number_that_was_anothers() {
    const ROUTES: u8 = 12;
    const EACH: u64 = 50;
    let Some(routed) = Routed::new("router-numbers") else { return };
    routed.add_hops();
    let few = [
        ("mirror", json!({"routes": 64, "count-routes": true})),
        (
            "tables",
            json!({"causes": {"capacity": 64}, "routes": {"capacity": 160},
                          "acl": {"capacity": 16}}),
        ),
    ];
    let router = routed.start(Mechanism::Packet, &few);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
    let mut numbers = BTreeSet::new();
    for route in 0..ROUTES {
        let (to, via) = (IpAddr::from([10, 150, route, 1]), hop_address(0));
        routed.ip(&format!("route add 10.150.{route}.0/24 via {via}"));
        // Those that came before the mirror had the route are Linux's, and not counted under it.
        let (before, mut probes) = (drop_count(&router, "forwarded"), 0);
        eventually("its packets are fast", || {
            sender.send(to, 2152);
            probes += 1;
            receivers.receive(1);
            drop_count(&router, "forwarded") > before
        });
        let first = by_destination(&router)[&to].1;
        assert!(first <= probes, "{first} packets to {to}, of {probes}: another route's");
        sender.send_all((0..EACH).map(|_| (to, 2152)));
        assert_eq!(receivers.receive(EACH as usize).len() as u64, EACH);
        let (number, count) = by_destination(&router)[&to].clone();
        assert_eq!(count - first, EACH, "{number} of {to}");
        numbers.insert(number);
        routed.ip(&format!("route del 10.150.{route}.0/24"));
    }
    // The control: numbers were used again.
    assert!(numbers.len() < usize::from(ROUTES), "{numbers:?}");
    router.stop();
}
