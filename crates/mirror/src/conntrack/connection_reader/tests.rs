//! Messages recorded from Linux 6.18 and their meaning. They are also the fuzzer's seeds.

use fastlane_testing::corpus;
use proptest::prelude::*;

use super::*;
use crate::fuzz;

/// Returns the events of a recorded datagram.
fn recorded(name: &str) -> Vec<ConntrackEvent> {
    let inputs = corpus::inputs("conntrack");
    let (_, bytes) = inputs.into_iter().find(|(other, _)| other == name).unwrap();
    ConntrackEvents::new(&bytes).map(|event| event.unwrap().1).collect()
}

fn connection(name: &str) -> Connection {
    match &recorded(name)[..] {
        [ConntrackEvent::Present(connection)] => (**connection).clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn tuple(text: &str) -> ConnectionTuple {
    let words: Vec<&str> = text.split(' ').collect();
    ConnectionTuple {
        source: words[1].parse().unwrap(),
        destination: words[2].parse().unwrap(),
        protocol: words[0].parse().unwrap(),
        ports: [words[3].parse().unwrap(), words[4].parse().unwrap()],
    }
}

#[test]
fn a_tcp_connection_behind_masquerade_is_read_from_beginning_to_end() {
    let states: Vec<(&str, u32, bool)> =
        ["tcp-0", "tcp-1", "tcp-2", "tcp-close-0", "tcp-close-1", "tcp-close-2", "tcp-close-3"]
            .into_iter()
            .map(|name| {
                let it = connection(name);
                let tcp = it.tcp.unwrap();
                assert_eq!(it.original.ports[1], 80);
                assert_eq!((it.mark, it.zones, tcp.is_liberal()), (1, [0, 0], false), "{name}");
                let timeout = it.timeout.unwrap();
                (tcp.state.name(), timeout, it.status.has(Status::ASSURED))
            })
            .collect();
    let expected = [
        ("SYN_SENT", 120, false),
        ("SYN_RECV", 60, false),
        ("ESTABLISHED", 432_000, true),
        ("FIN_WAIT", 120, true),
        ("CLOSE_WAIT", 60, true),
        ("LAST_ACK", 30, true),
        ("TIME_WAIT", 120, true),
    ];
    assert_eq!(states, expected);
    let it = connection("tcp-2");
    assert_eq!(it.original, tuple(&format!("6 10.77.0.2 10.78.0.2 {} 80", it.original.ports[0])));
    assert_eq!(it.reply, tuple(&format!("6 10.78.0.2 10.78.0.1 80 {}", it.original.ports[0])));
    assert!(it.status.has(Status::SEEN_REPLY) && !it.status.has(Status::OFFLOAD));
    assert!(it.helper.is_empty() && !it.has_master && !it.adjusts_sequence);
}

#[test]
fn other_protocols_zones_helpers_and_masters_are_read() {
    let udp = connection("udp-1");
    assert_eq!((udp.tcp, udp.timeout), (None, Some(30)));
    assert!(udp.status.has(Status::SEEN_REPLY) && !udp.status.has(Status::ASSURED));
    assert!(!connection("udp-0").status.has(Status::SEEN_REPLY));
    let six = connection("udp6-1");
    assert_eq!(six.reply.source, "fd78::2".parse::<IpAddr>().unwrap());
    assert_eq!(six.reply.destination, six.original.source);
    assert_eq!(connection("zone-1").zones, [7, 7]);
    let icmp = connection("icmp-0");
    assert_eq!((icmp.original.protocol, icmp.original.ports), (1, [0, 0]));
    assert_eq!(connection("helper-1").helper, "ftp");
    let expected = connection("expected-0");
    assert!(expected.has_master && expected.status.has(Status::EXPECTED));
    // Later events do not name the master, but the status bit stays.
    let later = connection("expected-1");
    assert!(!later.has_master && later.status.has(Status::EXPECTED));
}

#[test]
fn removals_dumps_and_new_rules_are_told_apart() {
    let removed = recorded("removed-0");
    assert!(matches!(&removed[..], [ConntrackEvent::Removed(it)] if it.original.ports[1] == 53));
    assert_eq!(recorded("rules-0"), [ConntrackEvent::Other]); // the rule itself
    assert_eq!(recorded("rules-1"), [ConntrackEvent::Rules(4)]);
    assert_eq!(recorded("dump-end"), [ConntrackEvent::Result(0)]);
    let all = recorded("dump-all-0");
    assert_eq!(all.len(), 5);
    let counted = |event: &ConntrackEvent| match event {
        ConntrackEvent::Present(it) => it.counters.iter().all(Option::is_some),
        _ => false,
    };
    assert!(all.iter().all(counted), "{all:?}");
}

/// Each message but those of the subsystem nftables is needed to its last attribute.
#[test]
fn shorter_messages_are_refused_or_say_less() {
    for (name, bytes) in corpus::inputs("conntrack") {
        let mut short = bytes.clone();
        for length in 16..bytes.len() {
            short[..4].copy_from_slice(&(length as u32).to_ne_bytes());
            fuzz::conntrack(&short[..length]);
            let first = ConntrackEvents::new(&short[..length]).next().unwrap();
            assert!(!name.starts_with("tcp") || length > 100 || first.is_err(), "{name} {length}");
        }
    }
}

#[test]
fn the_corpus_of_conntrack_holds() {
    corpus::replay("conntrack", 25, fuzz::conntrack);
}

/// Generates recorded datagrams with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 0..8);
    (any::<prop::sample::Index>(), changes).prop_map(|(which, changes)| {
        let mut inputs = corpus::inputs("conntrack");
        let mut bytes = inputs.swap_remove(which.index(inputs.len())).1;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn random_bytes_are_read(data in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzz::conntrack(&data);
    }

    #[test]
    fn changed_messages_are_read(data in mutated()) {
        fuzz::conntrack(&data);
    }
}
