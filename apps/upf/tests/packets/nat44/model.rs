//! The lane's translation compared with a reference that remembers all mappings in a map: what is
//! translated how, what is dropped, and that every checksum is right.

use fastlane_testing::corpus;
use proptest::prelude::*;
use upf::rules::layout::drop_reason::DropReason;

use super::nat_events::{AnyPacket, Event, play};
use super::nat_input::{PASSES, input_of, inside_port, play_input};
use super::*;

fn protocols() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(UDP), 1 => Just(TCP), 1 => Just(ICMP)]
}

/// Packets of any octets behind a header that is right in most cases.
fn any_packets() -> impl Strategy<Value = Event> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let octets = proptest::collection::vec(any::<u8>(), 1..80);
    (flags, octets, protocols(), any::<bool>()).prop_map(
        |(flags, mut octets, protocol, is_plain)| {
            let (is_up, other, is_addressed, is_repaired) = flags;
            if is_plain && octets.len() >= 20 {
                octets[0] = 0x45;
                octets[6..10].copy_from_slice(&[0, 0, 64, protocol]);
            }
            Event::Any(AnyPacket { is_up, other, is_addressed, is_repaired, octets })
        },
    )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let up = (any::<bool>(), protocols(), 0..90_u16, any::<bool>(), any::<u8>(), any::<u8>());
    let up = up.prop_map(|(other, protocol, port, server, control, data)| {
        let port = inside_port(port);
        Event::Up { other, protocol, port, server, control, data }
    });
    let down = (protocols(), 0..2 * PORTS, any::<u16>(), any::<u8>()).prop_map(
        |(protocol, offset, from, control)| Event::Down { protocol, offset, from, control },
    );
    let between = (any::<bool>(), protocols(), 0..90_u16, 0..2 * PORTS).prop_map(
        |(other, protocol, port, offset)| {
            let port = inside_port(port);
            Event::Between { other, protocol, port, offset }
        },
    );
    let error = (any::<bool>(), any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(is_up, kind, code, length)| Event::Error { is_up, kind, code, length });
    let pass = proptest::sample::select(&PASSES[..]).prop_map(Event::Pass);
    let any = any_packets();
    let one = prop_oneof![12 => up, 8 => down, 2 => between, 2 => error, 2 => any, 1 => pass];
    proptest::collection::vec(one, 1..220)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn the_lane_translates_as_the_reference(events in events()) {
        let mut world = NatLane::new();
        play(&mut world, &events);
        world.lane.check();
    }
}

/// Returns the inputs from which the fuzzer starts.
fn seeds() -> Vec<(String, Vec<u8>)> {
    // Each protocol: a packet of the user, the answer to each external port, an error about both.
    let flows = (0..4_u8).flat_map(|protocol| {
        let flags = protocol << 1;
        let answers = (0..2 * PORTS as u8).flat_map(move |offset| [2, flags, offset, 16, 0, 53]);
        let errors = [6, 0, 0, 1, 60, 6, 16, 0, 3, 60];
        [0, flags, 7, 2, 3].into_iter().chain(answers).chain(errors)
    });
    // More ports than a block has, and again when their time is over.
    let many = |protocol: u8| (0..90_u8).flat_map(move |port| [1, protocol << 1, port, 16, 0]);
    let exhausted = many(0).chain([4, 2]).chain(many(3));
    let between = (0..64_u8).flat_map(|offset| [0, 1, offset, 0, 0, 7, 0, offset, 64 + offset]);
    let mut all = vec![
        ("flows".to_owned(), flows.collect()),
        ("exhausted".to_owned(), exhausted.collect()),
        ("between-users".to_owned(), between.collect::<Vec<u8>>()),
    ];
    for (number, packet) in nat_input::kinds().iter().enumerate() {
        let mapped = [0, 0, 0, 2, 3];
        let input = [&mapped[..], &input_of(packet)].concat();
        all.push((format!("any-{number}"), input));
    }
    all
}

/// Replays the corpus of the fuzzer.
#[test]
fn the_corpus_of_nat_is_replayed() {
    corpus::seeds("upf_nat", seeds());
    let mut world = NatLane::new();
    corpus::replay("upf_nat", 16, |input| play_input(&mut world, input));
    // The fuzzer starts from packets with each of these outcomes.
    for reason in [
        DropReason::ForwardedUplink,
        DropReason::ForwardedDownlink,
        DropReason::UserToUser,
        DropReason::NatMappingMade,
        DropReason::NatNoMapping,
        DropReason::NatPortsExhausted,
        DropReason::NatProtocol,
        DropReason::TimeToLive,
    ] {
        assert!(world.lane.count(reason) > 0, "{reason:?}: {:?}", world.lane.drop_reasons());
    }
    world.lane.check();
}

/// Returns packets of every kind that NAT reads, to the external address and of the user.
fn kinds(world: &mut NatLane) -> Vec<(bool, Vec<u8>)> {
    let mut all = Vec::new();
    for protocol in [UDP, TCP, ICMP] {
        let port = world.map(protocol, 4000, SERVER);
        let flow = Flow { protocol, from: (SERVER, 53), to: (EXTERNAL, port) };
        let (sent, answer) = match protocol {
            ICMP => (echo(8, USER, SERVER, 4000), echo(0, SERVER, EXTERNAL, port)),
            _ => {
                let sent = transport(Flow::of_user(protocol, 4000, SERVER), 0x10, b"data");
                (sent, transport(flow, 0x10, b"answer"))
            }
        };
        let left = world.up(&sent).expect("a packet");
        let (_, got) = world.down(&answer).expect("a packet");
        all.push((false, icmp_error(3, 1, OTHER_SERVER, EXTERNAL, &left)));
        all.push((true, icmp_error(3, 3, USER, SERVER, &got)));
        all.extend([(true, sent), (false, answer)]);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40, failure_persistence: None, ..Default::default()
    })]
    /// Headers that lie, are cut off or contradict each other: each packet has one outcome, none
    /// leaves with the user's address, and all frames come back.
    #[test]
    fn whatever_arrives_is_translated_or_dropped(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u16>()), 1..200),
    ) {
        let mut world = NatLane::new();
        let all = kinds(&mut world);
        for (number, (at, value, cut)) in changes.into_iter().enumerate() {
            let (is_up, packet) = &all[number % all.len()];
            let mut packet = packet.clone();
            let length = packet.len();
            // The addresses stay: what is for somebody else is not NAT's.
            let at = Some(usize::from(at) % length).filter(|at| !(12..20).contains(at));
            at.into_iter().for_each(|at| packet[at] = value);
            if cut % 4 == 0 {
                packet.truncate(20 + usize::from(cut) % (length - 19));
            }
            if usize::from(packet[0] & 15) * 4 <= packet.len() {
                crate::frames::fill(&mut packet);
            }
            if *is_up {
                for left in world.up_of(SESSION, &packet) {
                    assert_ne!(left[12..16], USER, "{packet:02x?}");
                }
            } else {
                world.down(&packet);
            }
            world.lane.linux();
            world.lane.left(N6);
            world.lane.left(N3);
        }
        world.lane.check();
    }
}
