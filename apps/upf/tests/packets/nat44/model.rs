//! The lane's translation compared with a reference that remembers all mappings in a map: what is
//! translated how, what is dropped, and that every checksum is right.

use std::collections::BTreeMap;

use proptest::prelude::*;
use upf::rules::layout::drop_reason::DropReason;

use super::*;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A user (false: the first one) sends from a port.
    Up { other: bool, protocol: u8, port: u16, server: bool, data: u8 },
    /// The data network sends to an external port: an offset in the blocks of both users.
    Down { protocol: u8, offset: u16, from: u16 },
    /// Time passes, in ticks.
    Pass(u32),
}

fn protocols() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(UDP), 1 => Just(ICMP)]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let up = (any::<bool>(), protocols(), 0..90_u16, any::<bool>(), any::<u8>()).prop_map(
        |(other, protocol, port, server, data)| {
            let port = 3000 + port * 37;
            Event::Up { other, protocol, port, server, data }
        },
    );
    let down = (protocols(), 0..2 * PORTS, any::<u16>())
        .prop_map(|(protocol, offset, from)| Event::Down { protocol, offset, from });
    let pass = prop_oneof![Just(26_u32), Just(65), Just(403)].prop_map(Event::Pass);
    proptest::collection::vec(prop_oneof![12 => up, 8 => down, 1 => pass], 1..220)
}

/// User (false: the first one), protocol and inside port.
type Key = (bool, u8, u16);

/// Mappings: user, protocol and inside port to the external port and its age in ticks.
#[derive(Default)]
struct Model(BTreeMap<Key, (u16, u32)>);

/// Ticks that the test itself may take. All times that pass are multiples of 13 ticks, so that no
/// age is so close to a timer.
const VAGUE: u32 = 3;

impl Model {
    fn timer(protocol: u8) -> u32 {
        let timers = Timers::of([300, 60, 0, 0]);
        if protocol == ICMP { timers.icmp } else { timers.udp }
    }

    fn pass(&mut self, ticks: u32) {
        self.0.values_mut().for_each(|(_, age)| *age += ticks);
    }

    /// Returns the user and inside port of an external port; an age between the two limits is an
    /// error of the test.
    fn owner(&self, protocol: u8, external: u16) -> Option<(bool, u16)> {
        let mut found = self.0.iter().filter(|((_, of, _), (port, age))| {
            let timer = Self::timer(protocol);
            assert!(*of != protocol || age.abs_diff(timer) >= VAGUE);
            (*of, *port) == (protocol, external) && *age < timer
        });
        let first = found.next().map(|((other, _, port), _)| (*other, *port));
        assert!(found.next().is_none(), "{external} has two owners");
        first
    }
}

fn run(events: &[Event]) {
    let mut world = NatLane::new();
    let mut model = Model::default();
    for event in events {
        match *event {
            Event::Up { other, protocol, port, server, data } => {
                up(&mut world, &mut model, (other, protocol, port), server, data);
            }
            Event::Down { protocol, offset, from } => {
                let port = 1024 + BLOCK as u16 * PORTS + offset;
                let from = (SERVER, from);
                let flow = Flow { protocol, from, to: (EXTERNAL, port) };
                let packet = match protocol {
                    ICMP => echo(0, SERVER, EXTERNAL, port),
                    _ => transport(flow, 0, b"answer"),
                };
                let before = world.lane.count(DropReason::NatNoMapping);
                let got = world.down(&packet).map(|(tunnel, inner)| {
                    let flow = flow_of(&inner);
                    let address = if tunnel == OTHER_TEID { OTHER } else { USER };
                    assert_eq!(flow.to.0, address);
                    assert_eq!(
                        flow.from,
                        if protocol == ICMP { (SERVER, flow.to.1) } else { from }
                    );
                    (tunnel == OTHER_TEID, flow.to.1)
                });
                assert_eq!(got, model.owner(protocol, port));
                let dropped = world.lane.count(DropReason::NatNoMapping) - before;
                assert_eq!(dropped, u64::from(got.is_none()));
            }
            Event::Pass(ticks) => {
                world.age_by_ticks(ticks);
                model.pass(ticks);
            }
        }
    }
    world.received();
    world.lane.check();
}

fn up(world: &mut NatLane, model: &mut Model, key: Key, server: bool, data: u8) {
    let (other, protocol, port) = key;
    let to = if server { SERVER } else { OTHER_SERVER };
    let (session, address) = if other { (OTHER_SESSION, OTHER) } else { (SESSION, USER) };
    let flow = Flow { protocol, from: (address, port), to: (to, 53) };
    let packet = match protocol {
        ICMP => echo(8, address, to, port),
        _ => transport(flow, 0, &vec![data; usize::from(data)]),
    };
    let before = model.0.get(&key).copied();
    let live = |(other_user, of, _): &(bool, u8, u16), age: u32| {
        *other_user == other && age < Model::timer(*of)
    };
    let used = model.0.iter().filter(|(key, (_, age))| live(key, *age)).count();
    let Some(left) = world.up_of(session, &packet).pop() else {
        world.received(); // the ICMP error
        let is_live = before.is_some_and(|(_, age)| live(&key, age));
        assert!(!is_live, "a mapping was lost");
        assert!(used > usize::from(PORTS) * 3 / 4, "{used} ports are in use");
        model.0.remove(&key);
        return;
    };
    let left = flow_of(&left);
    let block = if other { OTHER_BLOCK } else { BLOCK };
    assert!(left.from.0 == EXTERNAL && world.is_in_block(block, left.from.1));
    assert_eq!(left.to.0, to);
    if let Some((external, _)) = before.filter(|(_, age)| live(&key, *age)) {
        assert_eq!(left.from.1, external, "the mapping changed");
    }
    let taken = |((of, protocol, port), (external, age)): (&(bool, u8, u16), &(u16, u32))| {
        (*of, *protocol, *port) != key
            && *external == left.from.1
            && live(&(*of, *protocol, *port), *age)
    };
    assert!(!model.0.iter().any(taken), "port {} is given twice", left.from.1);
    model.0.retain(|it, (external, _)| *external != left.from.1 || *it == key);
    model.0.insert(key, (left.from.1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..Default::default()
    })]
    #[test]
    fn the_lane_translates_as_the_reference(events in events()) {
        run(&events);
    }
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
