//! Sources of requests: `n4.allow`, the pin of an association, and when it moves.

use fastlane_pfcp::IeType;
use fastlane_pfcp::ie::{AlternativeSmfIpAddress, FSeid, SmfSetId};
use serde_json::json;

use super::session_requests::{control, deletion, establishment, seid_of};
use super::*;

const FAR_AWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 8805);

fn refused(world: &NodeTestbed, fault: SourceFault) -> u64 {
    let all = world.node.statistics().sources_refused.iter();
    all.filter(|((_, reason), _)| *reason == fault).map(|(_, count)| count).sum()
}

/// Returns a setup with an alternative address and an SMF Set ID.
fn setup_with(sequence: u32, name: &[u8], alternative: Option<Ipv4Addr>, set: &[u8]) -> Vec<u8> {
    request(MessageType::ASSOCIATION_SETUP_REQUEST, sequence, |to| {
        to.put(&NodeId::Name(name));
        to.put(&RecoveryTimeStamp(STARTED));
        let alternative =
            alternative.map(|v4| AlternativeSmfIpAddress { v4: Some(v4), ..Default::default() });
        to.maybe(alternative.as_ref());
        to.maybe((!set.is_empty()).then_some(&SmfSetId(set)));
    })
}

/// Returns a setup that retains all sessions.
fn retaining(sequence: u32, name: &[u8], recovery: u32) -> Vec<u8> {
    request(MessageType::ASSOCIATION_SETUP_REQUEST, sequence, |to| {
        to.put(&NodeId::Name(name));
        to.put(&RecoveryTimeStamp(recovery));
        to.group(IeType::PFCP_SESSION_RETENTION_INFORMATION, |_| {});
    })
}

fn modification(sequence: u32, seid: u64, name: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, seid, sequence);
    Writer::new(&mut bytes).message(header, |to| to.maybe(name.map(NodeId::Name).as_ref()));
    bytes
}

/// Answers the heartbeats of the node for 0.1 s steps, as a peer that is alive.
fn pass_alive(world: &mut NodeTestbed, tenths: u64) -> usize {
    let mut beats = 0;
    for _ in 0..tenths {
        for (_, sent) in world.pass(1) {
            let header = parse(&sent.bytes).header;
            if header.message_type != MessageType::HEARTBEAT_REQUEST {
                continue;
            }
            beats += 1;
            let stamp = RecoveryTimeStamp(STARTED);
            let answer = MessageType::HEARTBEAT_RESPONSE;
            let answer = request(answer, header.sequence, |to| to.put(&stamp));
            world.send(sent.to, &answer);
        }
    }
    beats
}

#[test]
fn an_address_that_is_not_allowed_does_not_associate() {
    let mut world = NodeTestbed::new(json!({ "allow": ["192.0.2.0/24"] }));
    assert!(!world.node.is_open());
    assert_eq!(cause(&world.ask(FAR_AWAY, &setup(1, SMF_NAME, STARTED))), 64);
    assert_eq!(world.node.associations().count(), 0);
    assert_eq!(refused(&world, SourceFault::NotAllowed), 1);
    world.associate(SMF, 2, SMF_NAME, STARTED);
    assert!(NodeTestbed::new(json!({})).node.is_open());
}

/// Its requests could come from any link, and ours to it would need the interface.
#[test]
fn a_link_local_smf_is_refused_with_a_response_to_its_interface() {
    let mut world = NodeTestbed::new(json!({ "allow": ["fe80::/64"] }));
    let smf = std::net::SocketAddrV6::new("fe80::7".parse().unwrap(), 8805, 0, 4);
    // The response goes to the interface, too.
    assert_eq!(cause(&world.ask(smf.into(), &setup(1, SMF_NAME, STARTED))), 64);
    assert_eq!(refused(&world, SourceFault::LinkLocal), 1);
    assert_eq!(world.node.associations().count(), 0);
}

/// Without `n4.allow` one host cannot take the associations of all others.
#[test]
fn a_source_that_is_not_named_has_a_share_of_the_associations() {
    let name = |number: u32| [b"\x05", format!("{number:05}").as_bytes()].concat();
    let fill = |world: &mut NodeTestbed, from: SocketAddr, numbers: std::ops::Range<u32>| {
        numbers.filter(|it| cause(&world.ask(from, &setup(*it, &name(*it), STARTED))) == 1).count()
    };
    let mut world = NodeTestbed::new(json!({}));
    assert_eq!(fill(&mut world, FAR_AWAY, 0..500), 16);
    assert_eq!(cause(&world.ask(FAR_AWAY, &setup(2000, &name(2000), STARTED))), 75);
    assert_eq!(refused(&world, SourceFault::TooMany), 500 - 16 + 1);
    world.associate(SMF, 2001, SMF_NAME, STARTED);
    // Those that exist are set up anew, and one that ends makes room.
    world.associate(FAR_AWAY, 2002, &name(3), STARTED + 1);
    let release = of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, 2003, &name(3));
    assert_eq!(cause(&world.ask(FAR_AWAY, &release)), 1);
    world.associate(FAR_AWAY, 2004, &name(2004), STARTED);
    // A host has all addresses of a /64.
    let v6 = |text: &str| SocketAddr::new(text.parse().unwrap(), 8805);
    assert_eq!(fill(&mut world, v6("2001:db8::1"), 3000..3010), 10);
    assert_eq!(fill(&mut world, v6("2001:db8::2"), 3010..3020), 6);
    assert_eq!(fill(&mut world, v6("2001:db8:0:1::1"), 3020..3030), 10);
    let mut named = NodeTestbed::new(json!({ "allow": ["203.0.113.0/24"] }));
    assert_eq!(fill(&mut named, FAR_AWAY, 0..64), 64);
}

#[test]
fn with_peers_only_those_may_associate_and_a_name_counts_once_it_is_resolved() {
    let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100", "other.example"] }));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    assert_eq!(cause(&world.ask(OTHER, &setup(2, OTHER_NAME, STARTED))), 64);
    assert!(pass_alive(&mut world, 10) == 0, "nobody to ask");
    world.node.set_peer_addresses(1, &["2001:db8::7".parse().unwrap(), OTHER.ip()]);
    let sent = world.pass(1);
    assert_eq!(type_of(&sent[0].1.bytes), MessageType::ASSOCIATION_SETUP_REQUEST);
    assert_eq!((sent.len(), sent[0].1.to), (1, OTHER), "N4 has no IPv6 address");
    world.associate(OTHER, 3, OTHER_NAME, STARTED);
}

#[test]
fn a_name_with_another_address_is_asked_there_at_once() {
    let mut world = NodeTestbed::new(json!({ "peers": ["other.example"] }));
    let setups = |sent: Vec<(u64, Outgoing)>| -> Vec<SocketAddr> {
        let is_setup = |bytes: &[u8]| type_of(bytes) == MessageType::ASSOCIATION_SETUP_REQUEST;
        sent.iter().filter(|(_, it)| is_setup(&it.bytes)).map(|(_, it)| it.to).collect()
    };
    world.node.set_peer_addresses(0, &[OTHER.ip()]);
    // It is silent: the pause between attempts has grown to a minute.
    assert!(setups(world.pass(3000)).iter().all(|to| *to == OTHER));
    while setups(world.pass(1)).is_empty() {}
    let silent = setups(world.pass(100));
    assert!(silent.len() < 4, "{silent:?}");
    // The same addresses again change nothing.
    world.node.set_peer_addresses(0, &[OTHER.ip()]);
    assert_eq!(setups(world.pass(10)), []);
    world.node.set_peer_addresses(0, &[SMF.ip()]);
    assert_eq!(setups(world.pass(1)), [SMF]);
}

#[test]
fn a_setup_from_another_address_is_refused_while_the_first_one_answers() {
    let mut world = NodeTestbed::new(json!({ "keep-sessions-s": 60 }));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    let mut beats = 0;
    for second in 0..60 {
        for (number, from) in [(0, OTHER), (1, FAR_AWAY)] {
            let sequence = 1000 + 2 * second + number;
            for attempt in [
                setup(sequence, SMF_NAME, STARTED + 9),
                retaining(sequence, b"\x03SMF\0", STARTED + 9),
            ] {
                // The node also asks the pinned address whether it is there.
                let answers = world.send(from, &attempt);
                let answer = answers.iter().find(|it| it.to == from).expect("a response");
                assert_eq!(cause(&answer.bytes), 64);
                for probe in answers.iter().filter(|it| it.to != from) {
                    assert_eq!(probe.to, SMF);
                    let sequence = parse(&probe.bytes).header.sequence;
                    let stamp = RecoveryTimeStamp(STARTED);
                    let alive = MessageType::HEARTBEAT_RESPONSE;
                    world.send(SMF, &request(alive, sequence, |to| to.put(&stamp)));
                    beats += 1;
                }
            }
        }
        beats += pass_alive(&mut world, 10);
    }
    assert!(beats <= 22, "{beats} heartbeats in 60 s: at most one each N1 times T1");
    assert_eq!(refused(&world, SourceFault::Pinned), 240);
    assert_eq!(world.node.associations().next().unwrap().peer.address, SMF);
    assert_eq!(cause(&world.ask(SMF, &modification(3, seid, None))), 1);
}

#[test]
fn an_smf_that_has_moved_is_accepted_when_its_old_address_is_silent() {
    for keep in [0, 60] {
        let mut world = NodeTestbed::new(json!({ "keep-sessions-s": keep, "heartbeat-s": 3600 }));
        world.associate(SMF, 1, SMF_NAME, STARTED);
        let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
        world.pass(31);
        let answers = world.send(OTHER, &setup(3, SMF_NAME, STARTED + 9));
        assert!(answers.iter().any(|it| it.to == SMF), "the old address is probed: {answers:?}");
        assert!(answers.iter().any(|it| it.to == OTHER && cause(&it.bytes) == 64));
        world.pass(29);
        assert_eq!(cause(&world.ask(OTHER, &setup(4, SMF_NAME, STARTED + 9))), 64);
        world.pass(1);
        // It retains its sessions, where they were kept.
        let answer = world.ask(OTHER, &retaining(5, SMF_NAME, STARTED + 9));
        assert_eq!(cause(&answer), 1);
        let all: Vec<_> = world.node.associations().map(|it| it.peer.address).collect();
        assert_eq!(all, [OTHER]);
        assert_eq!(world.node.sessions().find(seid).is_some(), keep > 0);
        // The old address is now a stranger's.
        assert_eq!(cause(&world.ask(SMF, &establishment(6, SMF_NAME, control(8, 100), 2))), 72);
    }
}

#[test]
fn a_restarted_smf_at_its_address_is_no_hijacker() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1));
    let other_port = SocketAddr::new(SMF.ip(), 12_345);
    world.associate(other_port, 1, SMF_NAME, STARTED + 1);
    assert!(world.node.sessions().is_empty(), "restoration");
    assert_eq!(world.node.statistics().sources_refused.len(), 0);
}

#[test]
fn requests_in_the_name_of_another_are_refused_and_change_nothing() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    let node = |number| of_node(MessageType(number), 3, SMF_NAME);
    let before = world.node.sessions().find(seid);
    for (from, of_session) in [(FAR_AWAY, 72), (OTHER, 65)] {
        for number in [7, 9, 14] {
            assert_eq!(cause(&world.ask(from, &node(number))), 72, "{number} from {from}");
        }
        let establish = establishment(4, SMF_NAME, control(8, 101), 2);
        assert_eq!(cause(&world.ask(from, &establish)), 72);
        assert_eq!(cause(&world.ask(from, &modification(5, seid, None))), of_session);
        assert_eq!(cause(&world.ask(from, &deletion(6, seid))), of_session);
    }
    // Even its own name does not help.
    assert_eq!(cause(&world.ask(OTHER, &modification(7, seid, Some(OTHER_NAME)))), 65);
    assert_eq!(world.node.sessions().find(seid), before);
    assert_eq!(world.node.sessions().len(), 1);
    let release = of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, 8, SMF_NAME);
    assert_eq!(cause(&world.ask(SMF, &release)), 1);
}

#[test]
fn a_flood_of_strangers_evicts_no_response_and_is_answered_at_a_limited_rate() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    // Refused responses are in no record, only in the cache.
    let request = establishment(2, SMF_NAME, FSeid { seid: 7, v4: None, v6: None }, 1);
    let first = world.ask(SMF, &request);
    assert_ne!(cause(&first), 1);
    let mut answers = 0;
    for sequence in 0..20_000 {
        let establish = establishment(sequence, OTHER_NAME, control(8, 101), 2);
        answers += world.send(FAR_AWAY, &establish).len();
        answers += world.send(OTHER, &establishment(sequence, SMF_NAME, control(8, 1), 2)).len();
    }
    assert!(answers <= 1001, "{answers}");
    assert_eq!(refused(&world, SourceFault::Unassociated), 20_000);
    assert_eq!(refused(&world, SourceFault::Pinned), 20_000);
    let repeated = world.node.statistics().repeated;
    assert_eq!(world.ask(SMF, &request), first);
    assert_eq!(world.node.statistics().repeated, repeated + 1);
}

#[test]
fn a_smf_speaks_from_the_alternative_addresses_that_it_announced() {
    let mut world = NodeTestbed::new(json!({}));
    let other = Ipv4Addr::new(192, 0, 2, 101);
    let answer = world.ask(SMF, &setup_with(1, SMF_NAME, Some(other), b""));
    assert_eq!(cause(&answer), 1);
    let seid = seid_of(&world.ask(OTHER, &establishment(2, SMF_NAME, control(7, 100), 1)));
    // What was announced outlives the process.
    world.kill();
    assert_eq!(cause(&world.ask(OTHER, &modification(3, seid, Some(SMF_NAME)))), 1);
    assert_eq!(cause(&world.ask(FAR_AWAY, &modification(4, seid, None))), 72);
    // Another instance takes over without waiting, and keeps the sessions.
    assert_eq!(cause(&world.ask(OTHER, &retaining(5, SMF_NAME, STARTED + 1))), 1);
    assert!(world.node.sessions().find(seid).is_some());
    assert_eq!(cause(&world.ask(SMF, &setup(6, SMF_NAME, STARTED + 2))), 64);
    // An update replaces the addresses.
    let back = request(MessageType::ASSOCIATION_UPDATE_REQUEST, 7, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        let v4 = Some(Ipv4Addr::new(192, 0, 2, 100));
        to.put(&AlternativeSmfIpAddress { v4, ..Default::default() });
    });
    assert_eq!(cause(&world.ask(OTHER, &back)), 1);
    assert_eq!(cause(&world.ask(SMF, &modification(8, seid, None))), 1);
}

#[test]
fn members_of_a_set_act_for_each_other_only_if_they_are_configured() {
    let set = b"\x04set1\x03smf";
    for (settings, expected) in [(json!({ "allow": ["192.0.2.0/24"] }), 1), (json!({}), 65)] {
        let mut world = NodeTestbed::new(settings);
        assert_eq!(cause(&world.ask(SMF, &setup_with(1, SMF_NAME, None, set))), 1);
        let member = setup_with(1, OTHER_NAME, None, b"\x04SET1\x03smf");
        assert_eq!(cause(&world.ask(OTHER, &member)), 1);
        let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
        let takeover = modification(3, seid, Some(OTHER_NAME));
        assert_eq!(cause(&world.ask(OTHER, &takeover)), expected);
        let owner = world.node.sessions().find(seid).unwrap().peer;
        assert_eq!(owner == 1, expected == 1);
        // The setup of another node stays its own.
        assert_eq!(world.node.associations().count(), 2);
    }
    let mut world = NodeTestbed::new(json!({ "allow": ["192.0.2.0/24"] }));
    assert_eq!(cause(&world.ask(SMF, &setup_with(1, SMF_NAME, None, set))), 1);
    let away = Ipv4Addr::new(203, 0, 113, 7);
    assert_eq!(cause(&world.ask(SMF, &setup_with(2, SMF_NAME, Some(away), set))), 1);
    let found = world.node.associations().next().unwrap().alternatives.clone();
    assert!(found.is_empty(), "an address that is not allowed is no alternative");
}

#[test]
fn a_peer_that_answers_our_setup_with_the_name_of_another_gets_nothing() {
    let mut world =
        NodeTestbed::new(json!({ "peers": ["192.0.2.101"], "allow": ["192.0.2.100/32"] }));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let sent = world.pass(1).remove(0).1;
    assert_eq!(sent.to, OTHER);
    let answer = MessageType::ASSOCIATION_SETUP_RESPONSE;
    let answer = request(answer, parse(&sent.bytes).header.sequence, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        to.put(&fastlane_pfcp::Cause::REQUEST_ACCEPTED);
        to.put(&RecoveryTimeStamp(STARTED + 1));
    });
    world.send(OTHER, &answer);
    let all: Vec<_> = world.node.associations().map(|it| it.peer.address).collect();
    assert_eq!(all, [SMF]);
}
