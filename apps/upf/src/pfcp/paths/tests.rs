use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::session::{Destination, Forwarding, OuterHeader};

const GNB: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 3, 0, 7));
/// Interface of N3, by the order of its name.
const N3: u16 = 2;
const ROUTE: Route = Route { interface: N3, remote: GNB };

fn settings() -> Settings {
    serde_json::from_value(serde_json::json!({
        "node-id": "upf.example",
        "n4": { "addresses": ["192.0.2.1"] },
        "interfaces": {
            "a-n6": { "port": "n6", "role": "n6", "network-instances": ["internet"] },
            "b-n9": { "port": "n9", "role": "n9", "network-instances": ["between"],
                      "addresses": ["10.9.0.1", "2001:db8:9::1"] },
            "c-n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                      "addresses": ["10.3.0.1"] },
        },
        "gtp": { "probe-s": 60, "t3-ms": 3000, "n3": 3 },
    }))
    .unwrap()
}

fn at(seconds: u64) -> Now {
    Now { monotonic: seconds * SECOND, real: 0 }
}

fn paths() -> Paths {
    Paths::new(&settings())
}

fn used(paths: &mut Paths, peer: u16) {
    add(&mut paths.paths, &mut paths.due, peer, ROUTE);
}

fn unused(paths: &mut Paths, peer: u16) {
    remove(&mut paths.paths, &mut paths.due, peer, ROUTE);
}

/// Events with their time in seconds.
type Moments<T> = Vec<(u64, T)>;

/// Runs the timers for each second. Returns the echo requests and path events.
fn run(paths: &mut Paths, seconds: std::ops::Range<u64>) -> (Moments<u16>, Moments<bool>) {
    let (mut sent, mut found) = (Vec::new(), Vec::new());
    for second in seconds {
        let mut out = Outbox::new();
        while let Some(event) = paths.tick(at(second), &mut out) {
            found.push((second, event.has_failed));
        }
        for message in out.lanes {
            let LaneMessage::Probe(probe) = message else { panic!("{message:?}") };
            assert_eq!(unmapped(probe.peer), GNB);
            assert_eq!(unmapped(probe.local), "10.3.0.1".parse::<IpAddr>().unwrap());
            sent.push((second, probe.sequence));
        }
    }
    (sent, found)
}

fn answer(sequence: u16) -> PathMessage {
    PathMessage { peer: mapped(GNB), local: [0; 16], teid: 0, sequence, interface: N3, at: 0 }
}

#[test]
fn a_path_that_answers_is_asked_once_a_period() {
    let mut paths = paths();
    used(&mut paths, 1);
    let (sent, found) = run(&mut paths, 100..101);
    assert_eq!((sent, found), (vec![(100, 1)], vec![]));
    assert_eq!(paths.answered(&answer(1)), None);
    assert_eq!(run(&mut paths, 101..161), (vec![(160, 2)], vec![]));
}

#[test]
fn a_silent_path_fails_after_n3_requests_and_comes_back_with_an_answer() {
    let mut paths = paths();
    used(&mut paths, 1);
    used(&mut paths, 5);
    let (sent, found) = run(&mut paths, 100..165);
    assert_eq!(sent, [(100, 1), (103, 1), (106, 1), (160, 2), (163, 2)]);
    assert_eq!(found, [(109, true)]);
    let event = paths.answered(&answer(2)).unwrap();
    assert_eq!(event, PathEvent { route: ROUTE, has_failed: false, peers: vec![1, 5] });
    assert_eq!(paths.answered(&answer(2)), None);
    // A second failure is reported again.
    assert_eq!(run(&mut paths, 165..300).1, [(229, true)]);
}

#[test]
fn an_answer_to_another_question_is_none() {
    let mut paths = paths();
    used(&mut paths, 1);
    run(&mut paths, 100..101);
    assert_eq!(paths.answered(&answer(7)), None);
    let other = PathMessage { interface: 0, ..answer(1) };
    assert_eq!(paths.answered(&other), None);
    assert_eq!(run(&mut paths, 101..110).1, [(109, true)]);
}

#[test]
fn a_path_is_there_while_somebody_uses_it() {
    let mut paths = paths();
    used(&mut paths, 1);
    used(&mut paths, 1);
    unused(&mut paths, 1);
    assert_eq!(paths.len(), 1);
    unused(&mut paths, 1);
    unused(&mut paths, 1);
    assert!(paths.is_empty() && paths.due.is_empty());
    assert_eq!(run(&mut paths, 0..100), (vec![], vec![]));
}

#[test]
fn paths_are_bounded_and_so_are_probes_at_a_time() {
    let mut paths = paths();
    for number in 0..PATHS as u32 + 10 {
        let remote = IpAddr::V4(Ipv4Addr::from(0x0a03_0000 + number));
        let route = Route { interface: N3, remote };
        add(&mut paths.paths, &mut paths.due, 1, route);
    }
    assert_eq!(paths.len(), PATHS);
    let mut out = Outbox::new();
    assert_eq!(paths.tick(at(1), &mut out), None);
    assert_eq!(out.lanes.len(), BURST);
    assert_eq!(paths.deadline(at(1)), Some(SECOND + PAUSE));
}

#[test]
fn no_time_begins_while_nothing_could_be_sent() {
    let mut paths = paths();
    used(&mut paths, 1);
    run(&mut paths, 100..107);
    paths.restart();
    let (sent, found) = run(&mut paths, 107..120);
    assert_eq!((sent, found), (vec![(109, 2), (112, 2), (115, 2)], vec![(118, true)]));
}

#[test]
fn a_far_leads_through_the_interface_of_its_side_or_its_instance() {
    let interfaces = Interfaces::new(&settings());
    let way = |destination, instance, v4: Option<&str>, v6: Option<&str>| Forwarding {
        destination,
        instance,
        outer: Some(OuterHeader {
            teid: Some(1),
            v4: v4.map(|v4| v4.parse().unwrap()),
            v6: v6.map(|v6| v6.parse().unwrap()),
            port: None,
        }),
        marking: None,
        redirect: None,
    };
    let index = |way: &Forwarding| interfaces.route(way).map(|route| route.interface);
    let gnb = Some("10.3.0.7");
    assert_eq!(index(&way(Destination::Access, None, gnb, None)), Some(2));
    assert_eq!(index(&way(Destination::Core, None, gnb, None)), Some(1));
    let between = settings().instance("between");
    assert_eq!(index(&way(Destination::Access, between, gnb, None)), Some(1));
    let internet = settings().instance("internet");
    assert_eq!(index(&way(Destination::Access, internet, gnb, None)), Some(2), "a DNN");
    // Only N9 has an IPv6 address.
    assert_eq!(index(&way(Destination::Access, None, None, Some("2001:db8::7"))), Some(1));
    assert_eq!(index(&way(Destination::Control, None, gnb, None)), None);
    let plain = Forwarding { outer: None, ..way(Destination::Access, None, gnb, None) };
    assert_eq!(index(&plain), None);
}
