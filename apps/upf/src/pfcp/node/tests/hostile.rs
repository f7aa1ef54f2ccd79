//! Hostile input: cases 14 to 18, 20 and 21, and arbitrary octets.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn discarded(world: &NodeTestbed, reason: Discarded) -> u64 {
    world.node.statistics().discarded.get(&reason).copied().unwrap_or(0)
}

#[test]
fn case_14_another_version_is_answered_with_its_sequence_number() {
    let mut world = NodeTestbed::new(json!({}));
    let mut datagram = heartbeat(0x0012_3456, 1);
    datagram[0] = 2 << 5;
    let answer = world.ask(SMF, &datagram);
    assert_eq!(answer, [0x20, 11, 0, 4, 0x12, 0x34, 0x56, 0]);
    // A Version Not Supported response gets no response: two nodes would loop forever.
    datagram[1] = 11;
    assert!(world.send(SMF, &datagram).is_empty());
}

#[test]
fn case_15_a_flood_of_another_version_is_answered_at_a_limited_rate() {
    let mut world = NodeTestbed::new(json!({}));
    let mut datagram = heartbeat(1, 1);
    datagram[0] = 2 << 5;
    let mut answers = 0;
    for _ in 0..10_000 {
        world.now = world.now.after(SECOND / 1000);
        answers += world.send(SMF, &datagram).len();
    }
    assert!((90..=120).contains(&answers), "{answers} in 10 s");
    assert_eq!(discarded(&world, Discarded::Version), 10_000 - answers as u64);
    assert_eq!(world.ask(SMF, &heartbeat(2, 1)).len(), 16, "others are answered");
}

#[test]
fn case_16_what_is_no_message_is_discarded() {
    let mut world = NodeTestbed::new(json!({}));
    let whole = setup(1, SMF_NAME, STARTED);
    for length in 0..whole.len() {
        assert!(world.send(SMF, &whole[..length]).is_empty(), "{length} octets");
    }
    assert_eq!(discarded(&world, Discarded::Malformed), whole.len() as u64);
    let mut longer = whole.clone();
    longer[3] += 1;
    assert!(world.send(SMF, &longer).is_empty());
    assert_eq!(world.node.associations().count(), 0);
}

#[test]
fn cases_17_and_18_unknown_messages_and_answers_nobody_asked_for_are_discarded() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let known = [1, 3, 5, 7, 9, 14];
    for number in 0..=255 {
        let message_type = MessageType(number);
        let header = match message_type.is_session() {
            true => Header::session(message_type, 1, 7),
            false => Header::node(message_type, 7),
        };
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).message(header, |_| {});
        let answers = world.send(SMF, &bytes).len();
        let is_request = known.contains(&number) || matches!(number, 50 | 52 | 54);
        assert_eq!(answers, usize::from(is_request), "{message_type}");
    }
    assert_eq!(discarded(&world, Discarded::Unsolicited), 13);
    assert!(discarded(&world, Discarded::MessageType) > 200);
}

#[test]
fn case_20_a_session_message_needs_a_seid_and_a_node_message_may_have_one() {
    let mut world = NodeTestbed::new(json!({}));
    let mut bytes = Vec::new();
    let header = Header { seid: Some(1), ..Header::node(MessageType::HEARTBEAT_REQUEST, 1) };
    Writer::new(&mut bytes).message(header, |to| to.put(&RecoveryTimeStamp(1)));
    let answer = world.ask(SMF, &bytes);
    assert_eq!(parse(&answer).header, Header::node(MessageType::HEARTBEAT_RESPONSE, 1));
    let deletion = request(MessageType::SESSION_DELETION_REQUEST, 1, |_| {});
    assert!(world.send(SMF, &deletion).is_empty());
    assert_eq!(discarded(&world, Discarded::SeidFlag), 1);
}

#[test]
fn case_21_bundled_messages_are_answered_each() {
    let mut world = NodeTestbed::new(json!({}));
    let mut bundle = Vec::new();
    let mut writer = Writer::new(&mut bundle);
    for sequence in 1..=3 {
        let follow_on = sequence < 3;
        let header = Header::node(MessageType::HEARTBEAT_REQUEST, sequence);
        let header = Header { follow_on, ..header };
        writer.message(header, |to| to.put(&RecoveryTimeStamp(1)));
    }
    let answers = world.send(SMF, &bundle);
    let sequence = |it: &Outgoing| parse(&it.bytes).header.sequence;
    assert_eq!(answers.iter().map(sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(answers.iter().all(|it| !parse(&it.bytes).header.follow_on));
    // A truncated message does not invalidate the others of its bundle.
    assert_eq!(world.send(SMF, &bundle[..bundle.len() - 1]).len(), 2);
    // The number of messages of a bundle is bounded.
    let mut endless = Vec::new();
    let header = Header { follow_on: true, ..Header::node(MessageType::HEARTBEAT_REQUEST, 1) };
    (0..1000).for_each(|_| Writer::new(&mut endless).message(header, |_| {}));
    assert_eq!(world.send(SMF, &endless).len(), 32);
    assert_eq!(discarded(&world, Discarded::Bundle), 1);
}

#[test]
fn case_55_a_flood_of_establishments_is_told_to_slow_down() {
    use fastlane_pfcp::IeType;
    use fastlane_pfcp::ie::{FSeid, Metric, Timer};
    let mut world = NodeTestbed::new(json!({ "establishments-per-s": 10 }));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let establishment = |sequence| {
        let mut bytes = Vec::new();
        let message_type = MessageType::SESSION_ESTABLISHMENT_REQUEST;
        Writer::new(&mut bytes).message(Header::session(message_type, 0, sequence), |to| {
            to.put(&NodeId::Name(SMF_NAME));
            to.put(&FSeid { seid: 77, v4: Some(Ipv4Addr::LOCALHOST), v6: None });
        });
        bytes
    };
    let first = world.ask(SMF, &establishment(2));
    assert_ne!(Message::parse(&first).unwrap().0.group().need(), Ok(CauseIe(74)));
    let refused = world.ask(SMF, &establishment(3));
    let message = parse(&refused);
    assert_eq!((message.header.seid, cause(&refused)), (Some(77), 74));
    let told = message.group().group(IeType::OVERLOAD_CONTROL_INFORMATION).unwrap();
    assert!(told.need::<Metric>().unwrap().0 >= 5);
    assert_eq!(told.need::<Timer>().unwrap().0.seconds(), Some(10));
    // A retransmission gets the same response, though there would be room by now.
    world.pass(20);
    assert_eq!(world.ask(SMF, &establishment(3)), refused);
    assert_ne!(world.ask(SMF, &establishment(4)), refused);
}

/// Returns valid messages with some octets changed.
fn nearly_sound() -> impl Strategy<Value = Vec<u8>> {
    let sound = prop_oneof![
        (0..9_u32).prop_map(|sequence| setup(sequence, SMF_NAME, STARTED)),
        (0..9_u32).prop_map(|sequence| setup(sequence, OTHER_NAME, STARTED + sequence)),
        (0..9_u32).prop_map(|sequence| heartbeat(sequence, STARTED + sequence)),
        (0..9_u32, prop_oneof![Just(7), Just(9), Just(14)], any::<bool>()).prop_map(
            |(sequence, number, other)| {
                let name = if other { OTHER_NAME } else { SMF_NAME };
                of_node(MessageType(number), sequence, name)
            }
        ),
        (0..9_u32, any::<u8>(), vec(any::<u8>(), 0..40)).prop_map(|(sequence, number, body)| {
            let mut bytes = vec![0x20 | u8::from((50..100).contains(&number)), number];
            bytes.extend((body.len() as u16 + 4).to_be_bytes());
            bytes.extend(&sequence.to_be_bytes()[1..]);
            bytes.push(0);
            bytes.extend(body);
            bytes
        }),
    ];
    (sound, vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)).prop_map(
        |(mut bytes, changes)| {
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes
        },
    )
}

/// Input step.
#[derive(Clone, Debug)]
enum Step {
    Datagram(Vec<u8>, u16),
    Lane(u32, Vec<u8>),
    Pass(u64),
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (prop_oneof![nearly_sound(), vec(any::<u8>(), 0..64)], 0..3_u16)
            .prop_map(|(bytes, from)| Step::Datagram(bytes, from)),
        3 => (0..40_u32, vec(any::<u8>(), 0..64)).prop_map(|(kind, body)| Step::Lane(kind, body)),
        3 => (1..100_u64).prop_map(Step::Pass),
        1 => Just(Step::Kill),
    ]
}

/// Few cases, because opening tables is slow; the fuzz target `pfcp_node` runs more.
const CASES: u32 = 12;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn whatever_comes_answers_are_bounded_and_sound(steps in vec(step(), 0..40)) {
        let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100"], "keep-sessions-s": 5 }));
        for step in steps {
            match step {
                Step::Datagram(bytes, from) => {
                    let from = SocketAddr::new(SMF.ip(), 8805 + from);
                    let answers = world.send(from, &bytes);
                    prop_assert!(answers.len() <= 32);
                    prop_assert!(answers.len() <= 1 || bytes[0] & 4 != 0);
                    for answer in answers {
                        prop_assert_eq!(answer.to, from);
                        prop_assert!(answer.bytes.len() < 1000);
                        let (message, _) = Message::parse(&answer.bytes).unwrap();
                        prop_assert!(message.header.message_type.is_response());
                        prop_assert!(message.header.message_type.is_session()
                            || message.check().is_ok());
                    }
                }
                Step::Lane(kind, body) => {
                    world.node.lane_message(world.now, kind, &body, &mut Outbox::new());
                }
                Step::Pass(tenths) => {
                    // N1 requests in T1 to each of two peers, and one setup.
                    let sent = world.pass(tenths);
                    prop_assert!(sent.len() as u64 <= 3 * (tenths + 3), "{}", sent.len());
                }
                Step::Kill => {
                    let before: Vec<_> = world.node.associations().cloned().collect();
                    let stamp = world.node.identity().recovery;
                    world.kill();
                    let after: Vec<_> = world.node.associations().cloned().collect();
                    prop_assert_eq!(before, after);
                    prop_assert_eq!(stamp, world.node.identity().recovery);
                }
            }
        }
    }

    #[test]
    fn a_request_that_comes_again_gets_the_same_bytes(
        datagram in nearly_sound(),
        others in vec(nearly_sound(), 0..5),
    ) {
        let mut world = NodeTestbed::new(json!({}));
        let first = world.send(SMF, &datagram);
        for other in others {
            world.send(OTHER, &other);
        }
        let is_version = datagram.first().is_some_and(|flags| flags >> 5 != 1);
        let again = world.send(SMF, &datagram);
        prop_assert!(is_version || first == again);
        // A refused request changed nothing, so a successor evaluates it again.
        let is_accepted = |answer: &Outgoing| {
            let (message, _) = Message::parse(&answer.bytes).unwrap();
            message.group().find() == Ok(Some(CauseIe(1)))
        };
        if first.iter().all(is_accepted) {
            world.kill();
            prop_assert_eq!(first, world.send(SMF, &datagram));
        }
    }
}
