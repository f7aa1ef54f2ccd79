//! Entry points of the fuzz targets, which the tests call too when they replay the corpus. Not for
//! applications: the functions panic when an invariant is broken.

use std::net::IpAddr;
use std::sync::Arc;

use fastlane_core::PortId;
use fastlane_table::{Guard, Readers};

use super::conntrack::{ConnectionTuple, ConntrackEvent, ConntrackEvents};
use super::flows::FlowPolicy;
use super::ipsec::{IpsecPolicies, IpsecPolicy};
use super::message::{Message, Messages};
use super::model::{Changes, LOCAL, MAIN, Model, Target};
use super::packet_rules::RuleSearch;
use super::publish::Publisher;
use super::{FallbackReason, Memories, Mirror, MirrorSettings, RouteLookup};

/// Parses arbitrary bytes as rtnetlink messages, applies them to a model and checks its invariants.
pub fn netlink(data: &[u8]) {
    let _ = model(data);
}

/// Parses arbitrary bytes as ctnetlink messages, and checks that connections are of one family.
pub fn conntrack(data: &[u8]) {
    for event in ConntrackEvents::new(data) {
        let Ok((_, ConntrackEvent::Present(it) | ConntrackEvent::Removed(it))) = event else {
            continue;
        };
        let is_ipv4 = it.original.source.is_ipv4();
        let others = [it.original.destination, it.reply.source, it.reply.destination];
        assert!(others.iter().all(|address| address.is_ipv4() == is_ipv4), "{it:?}");
        assert_eq!(it.original.protocol, it.reply.protocol);
        assert!(it.helper.len() <= data.len() * 3);
    }
}

/// Parses arbitrary bytes as messages about IPsec policies, and asks them for a connection.
pub fn ipsec(data: &[u8]) {
    let (mut messages, mut policies) = (Messages::new(data), Vec::new());
    while let Some(Ok((_, body))) = messages.next_body() {
        policies.extend(IpsecPolicy::read(body).ok().flatten());
    }
    let policies = IpsecPolicies::new(policies);
    let tuple = |source: [u8; 4], destination: [u8; 4], ports| ConnectionTuple {
        source: source.into(),
        destination: destination.into(),
        protocol: 6,
        ports,
    };
    let original = tuple([10, 0, 0, 1], [10, 2, 0, 2], [4000, 443]);
    let reply = tuple([10, 2, 0, 2], [192, 0, 2, 1], [443, 5000]);
    let covers = policies.cover(&original, &reply);
    assert!(!covers || !policies.is_empty());
    assert_eq!(covers, policies.cover(&reply, &original), "both directions are judged");
}

/// Parses arbitrary bytes as messages about rules of nftables, and searches them for one that acts
/// on each packet.
pub fn packet_rules(data: &[u8]) {
    let policy = FlowPolicy { mark: 1, mask: 1, one_way: data.len() % 2 == 1 };
    let (mut messages, mut search) = (Messages::new(data), RuleSearch::new(policy));
    while let Some(Ok((header, body))) = messages.next_body() {
        search.take(header, body);
    }
    if let Some(rule) = search.found() {
        assert!(!rule.what.is_empty() && rule.to_string().contains(&rule.what));
    }
}

/// Applies messages to a model and writes the tables after every datagram of at most 256 bytes.
/// Checks that lookups agree with the model. Returns the number of lookups that forwarded.
///
/// # Panics
/// Panics if a lookup disagrees with the model, or if there is no memory.
pub fn tables(data: &[u8], guard: &Guard, readers: &Arc<Readers>) -> usize {
    let settings = MirrorSettings {
        tables: vec![MAIN],
        routes4: 16,
        routes6: 16,
        groups: 8,
        hops: 8,
        neighbours: 8,
        links: 8,
        addresses: 8,
        ..MirrorSettings::new("fuzz")
    };
    let memories = Memories::create(&settings).expect("memory");
    let mut publisher = Publisher::attach(&memories, &settings, readers).expect("new tables");
    let mirror = Mirror::attach(&memories).expect("tables");
    let mut state = Model::new(&settings.tables);
    publisher.set_ports(&[(7, PortId(0)), (8, PortId(1))], &state);
    publisher.set_ready();
    let mut forwarded = 0;
    for datagram in data.chunks(256) {
        let changes = apply(datagram, &mut state);
        publisher.publish(&state, &changes);
        for ipv6 in [false, true] {
            for destination in state.destinations(MAIN, ipv6) {
                for address in [destination.address(), destination.last()] {
                    forwarded += usize::from(compare(&state, &mirror, guard, address));
                }
            }
        }
    }
    forwarded
}

/// Returns true if a lookup forwards packets to `address`; checks the result against the model.
fn compare(state: &Model, mirror: &Mirror, guard: &Guard, address: IpAddr) -> bool {
    let lookup = match address {
        IpAddr::V4(address) => mirror.route4(guard, address, 0),
        IpAddr::V6(address) => mirror.route6(guard, address, 0),
    };
    let RouteLookup::Forward(next) = lookup else { return false };
    assert!(state.is_usable(next.link), "{address} leaves by an interface that is down");
    let all = [LOCAL, MAIN].into_iter().flat_map(|table| {
        let covers = |prefix: &&super::Prefix| prefix.covers(&super::Prefix::host(address));
        let best = state
            .destinations(table, address.is_ipv6())
            .filter(covers)
            .max_by_key(|prefix| prefix.length());
        best.and_then(|prefix| state.target(MAIN, prefix)).map(|target| (table, target))
    });
    let targets: Vec<(u32, Target)> = all.collect();
    assert!(targets.iter().all(|(table, _)| *table == MAIN), "{address} is Linux's: {targets:?}");
    let has_hop = targets.iter().any(|(_, target)| match target {
        Target::NextHops { hops, .. } => hops.iter().any(|hop| hop.link == next.link && !hop.dead),
        Target::Fallback(_) => false,
    });
    assert!(has_hop, "{address}: {next:?}, but {targets:?}");
    assert!(!state.has_policy(address.is_ipv6()), "{address} in spite of rules");
    true
}

fn model(data: &[u8]) -> Model {
    let mut state = Model::new(&[MAIN]);
    apply(data, &mut state);
    for ipv6 in [false, true] {
        for table in [MAIN, LOCAL] {
            for destination in state.destinations(table, ipv6) {
                let target = state.target(table, destination).expect("a route has a target");
                if let Target::NextHops { hops, .. } = target {
                    assert!(!hops.is_empty(), "a route without a next hop");
                }
                assert!(state.covered(table, destination).any(|inside| inside == *destination));
            }
        }
        let _ = state.has_policy(ipv6);
    }
    assert!(state.differences(&state).is_empty());
    assert!(FallbackReason::ALL.len() < super::records::FIRST_GROUP as usize);
    state
}

fn apply(data: &[u8], state: &mut Model) -> Changes {
    let mut changes = Changes::default();
    for message in Messages::new(data) {
        match message {
            Ok((_, Message::Done(_) | Message::Ack(_))) | Err(_) => {}
            Ok((_, Message::Netconf(netconf) | Message::NetconfRemoved(netconf))) => {
                assert!(netconf.reverse_path.is_none_or(|mode| mode <= 2), "{netconf:?}");
            }
            Ok((_, message)) => state.apply(message, &mut changes),
        }
    }
    changes
}
