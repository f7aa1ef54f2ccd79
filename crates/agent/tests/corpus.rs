//! Replays the committed corpus of the fuzz target and keeps its seeds up to date.

use fastlane::agent::records::{self, Request};
use fastlane_agent::fuzz;
use fastlane_testing::corpus;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::Config;
use serde_json::json;

/// Returns the records of all requests, and damaged ones.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let token = "0123456789abcdef0123456789abcdef";
    let driver =
        json!({"af-xdp": {"interface": "eth1", "busy-poll": {"time-us": 20, "budget": 64}}});
    let packet = json!({"af-packet": {"interface": "eth1", "ring": 64}});
    let sockets = json!({"driver": packet, "steer": [], "max-length": 1792, "sockets": 2});
    let rules = json!([
        {"udp-port": "40000-40099", "source": "10.0.0.0/8"}, {"gtp-u": true},
        {"ethertype": "0x88f7"}, {"ip-protocol": "sctp", "destination": "2001:db8::/32"},
    ]);
    let attach = json!({"driver": driver, "steer": rules, "max-length": 1792});
    let resume =
        json!({"device": token, "words": [7, 1, 0, 1792], "attach": attach, "is-released": false});
    let lane = json!({"frame-size": 2048, "devices": [{"device": token, "queues": [0, 1]}]});
    let requests = [
        json!({"attach": attach}),
        json!({"attach": sockets}),
        json!({"resume": resume}),
        json!({"bind-lane": lane}),
        json!({"claim": {"device": token, "queue": 3}}),
        json!({"replace-rules": {"device": token, "steer": rules}}),
        json!({"release": {"device": token}}),
        json!({"set-max-length": {"device": token, "length": 9000}}),
        json!({"counts": {"device": token}}),
        json!({"detach": {"device": token}}),
        json!("rights"),
        json!({"interface": {"name": "eth1", "index": 7}}),
        json!({"follow": {"tap": "eth1", "device": token}}),
        json!({"tap": {"name": "n6", "mac": [2, 0, 0, 0, 0, 1], "mtu": 1500, "queues": 2,
            "addresses": [["10.45.0.1", 16], ["2001:db8::1", 64]]}}),
        json!({"set-tap-down": {"name": "n6"}}),
        json!({"reenter": {"device": token, "queues": 2}}),
        json!({"redirect": {"reentry": 0, "device": token}}),
        json!({"vfio": {"address": "0000:3b:02.0"}}),
    ];
    let mut seeds = Vec::<(String, Vec<u8>)>::new();
    for (number, request) in (1..).zip(requests) {
        let named = request.as_object().and_then(|it| it.keys().next());
        let name = named.map(String::as_str).or(request.as_str()).expect("a name").to_owned();
        let request: Request = serde_json::from_value(request).expect("a request");
        let name = match seeds.iter().any(|(other, _)| *other == name) {
            true => format!("{name}-{number}"),
            false => name,
        };
        seeds.push((name, records::encode(number, &request).expect("a short record")));
    }
    let whole = seeds[0].1.clone();
    let (mut magic, mut version) = (whole.clone(), whole.clone());
    (magic[0], version[8]) = (b'x', 9);
    let deep = [&whole[..16], "[".repeat(1000).as_bytes()].concat();
    let damaged = [
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("magic", magic),
        ("version", version),
        ("deep", deep),
        ("number", [&whole[..16], br#"{"claim":{"device":"","queue":4294967296}}"#].concat()),
        ("twice", [&whole[..16], br#"{"release":{"device":"","device":""}}"#].concat()),
    ];
    seeds.extend(damaged.map(|(name, bytes)| (name.to_owned(), bytes)));
    seeds
}

/// Returns the requests of the handshake, and damaged ones.
fn handshakes() -> Vec<(String, Vec<u8>)> {
    let requests = [
        ("connect", &b"/connect,pod-7"[..]),
        ("version", b"/version"),
        ("map", b"/xsk_map_fd,eth1"),
        ("socket", b"/xsk_socket"),
        ("busy-poll", b"/config_busy_poll,20,64"),
        ("fin", b"/fin\0"),
        ("blanks", b" /config_busy_poll , 4294967295 ,\t0 "),
        ("many", b"/connect,,,,"),
        ("no-text", b"/connect,\xff"),
    ];
    let owned = |(name, record): (&str, &[u8])| (name.to_owned(), record.to_vec());
    requests.into_iter().map(owned).collect()
}

#[test]
fn the_seeds_are_committed() {
    corpus::seeds("agent_records", seeds());
    corpus::seeds("agent_handshake", handshakes());
}

#[test]
fn the_corpora_hold() {
    corpus::replay("agent_records", 20, fuzz::record);
    corpus::replay("agent_handshake", 9, fuzz::handshake);
}

proptest! {
    #![proptest_config(Config { cases: 4000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn damaged_records_hold(
        seed in any::<Index>(),
        damages in vec((0..3, any::<Index>(), any::<u8>()), 1..4),
    ) {
        let seeds = seeds();
        let mut record = seed.get(&seeds).1.clone();
        for (kind, at, octet) in damages {
            let at = at.index(record.len());
            match kind {
                0 => record[at] = octet,
                1 => drop(record.remove(at)),
                _ => record.insert(at, octet),
            }
        }
        fuzz::record(&record);
    }

    #[test]
    fn damaged_handshakes_hold(
        seed in any::<Index>(),
        at in any::<Index>(),
        inserted in vec(any::<u8>(), 0..8),
    ) {
        let seeds = handshakes();
        let mut record = seed.get(&seeds).1.clone();
        let at = at.index(record.len());
        record.splice(at..at, inserted);
        fuzz::handshake(&record);
    }
}
