//! Random sequences against a model that has no lists, slots or rounds of packets: only numbers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use proptest::prelude::*;

use super::rig::{SIZES, Sizes, Two, rig};
use super::{FORWARD, key};
use crate::{Packet, Turn, Verdict};

const KEYS: u32 = 5;

/// What an application does when it is called.
#[derive(Clone, Copy, Debug)]
enum Action {
    Resume(u32),
    Discard(u32),
}

/// What it does with a packet: the first decision when it is shown first, and so on.
#[derive(Clone, Copy, Debug)]
enum Decision {
    Hold(u32),
    Send,
    Drop,
}

#[derive(Clone, Debug)]
struct Script {
    /// Of each packet; when it has no more, it is sent.
    decisions: Vec<Vec<Decision>>,
    /// Of each call of `process`, in order; and of `turn`.
    in_process: Vec<Vec<Action>>,
    in_turn: Vec<Vec<Action>>,
    /// How many packets arrive before each turn.
    arrivals: Vec<usize>,
    burst: usize,
    limits: (usize, usize),
}

fn script() -> impl Strategy<Value = Script> {
    let action = prop_oneof![
        4 => (0..KEYS).prop_map(Action::Resume),
        1 => (0..KEYS).prop_map(Action::Discard),
    ];
    let actions = || proptest::collection::vec(action.clone(), 0..3);
    let decision = prop_oneof![
        4 => (0..KEYS).prop_map(Decision::Hold),
        2 => Just(Decision::Send),
        1 => Just(Decision::Drop),
    ];
    (
        proptest::collection::vec(proptest::collection::vec(decision, 0..5), 1..60),
        proptest::collection::vec(actions(), 0..60),
        proptest::collection::vec(actions(), 0..30),
        proptest::collection::vec(0..10_usize, 1..30),
        1..9_usize,
        (0..20_usize, 1..12_usize),
    )
        .prop_map(|(decisions, in_process, in_turn, arrivals, burst, limits)| Script {
            decisions,
            in_process,
            in_turn,
            arrivals,
            burst,
            limits,
        })
}

/// What can be seen from outside: each call of `process` with the numbers of its packets, what each
/// action answered, and what was sent.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    shown: Vec<Vec<u8>>,
    answers: Vec<usize>,
    sent: Vec<u8>,
}

/// Both the application and the model decide by this.
struct Decider {
    script: Script,
    times: BTreeMap<u8, usize>,
    processes: usize,
    turns: usize,
}

impl Decider {
    fn new(script: &Script) -> Self {
        Self { script: script.clone(), times: BTreeMap::new(), processes: 0, turns: 0 }
    }

    fn decide(&mut self, number: u8) -> Decision {
        let times = self.times.entry(number).or_default();
        *times += 1;
        let decisions = &self.script.decisions[usize::from(number)];
        decisions.get(*times - 1).copied().unwrap_or(Decision::Send)
    }

    fn in_process(&mut self) -> Vec<Action> {
        self.processes += 1;
        self.script.in_process.get(self.processes - 1).cloned().unwrap_or_default()
    }

    fn in_turn(&mut self) -> Vec<Action> {
        self.turns += 1;
        self.script.in_turn.get(self.turns - 1).cloned().unwrap_or_default()
    }
}

/// Packets as (key, serial number, number); requests as (key, serial number).
struct Model {
    decider: Decider,
    held: Vec<(u32, usize, u8)>,
    requests: Vec<(u32, usize)>,
    /// Where a round is in the requests.
    place: usize,
    serial: usize,
    seen: Seen,
}

impl Model {
    fn count(&self, key: u32) -> usize {
        self.held.iter().filter(|held| held.0 == key).count()
    }

    fn act(&mut self, action: Action) {
        let answer = match action {
            Action::Resume(key) => {
                let (count, serial) = (self.count(key), self.serial);
                match self.requests.iter_mut().find(|request| request.0 == key) {
                    _ if count == 0 => {}
                    Some(request) => request.1 = serial,
                    None => self.requests.push((key, serial)),
                }
                count
            }
            Action::Discard(key) => {
                let count = self.count(key);
                if count > 0 {
                    self.held.retain(|held| held.0 != key);
                    let wanted = self.requests.iter().position(|request| request.0 == key);
                    if let Some(at) = wanted {
                        self.requests.remove(at);
                        self.place -= usize::from(at < self.place);
                    }
                }
                count
            }
        };
        self.seen.answers.push(answer);
    }

    fn process(&mut self, numbers: &[u8]) -> Vec<Decision> {
        self.seen.shown.push(numbers.to_vec());
        let decisions = numbers.iter().map(|number| self.decider.decide(*number)).collect();
        self.decider.in_process().into_iter().for_each(|action| self.act(action));
        decisions
    }

    fn dispatch(&mut self, numbers: &[u8], decisions: &[Decision]) {
        let (packets, per_key) = self.decider.script.limits;
        for (number, decision) in numbers.iter().zip(decisions) {
            match decision {
                Decision::Send => self.seen.sent.push(*number),
                Decision::Drop => {}
                Decision::Hold(key) => {
                    if self.held.len() < packets && self.count(*key) < per_key {
                        self.held.push((*key, self.serial, *number));
                        self.serial += 1;
                    }
                }
            }
        }
    }

    fn resume(&mut self) {
        let bound = self.serial;
        self.place = 0;
        while let Some(&(key, until)) = self.requests.get(self.place) {
            let until = until.min(bound);
            let wanted = |held: &&(u32, usize, u8)| held.0 == key && held.1 < until;
            let burst = self.decider.script.burst;
            let numbers: Vec<u8> =
                self.held.iter().filter(wanted).take(burst).map(|held| held.2).collect();
            if numbers.is_empty() {
                // Wanted, but held in this round: that is for the next.
                let until = self.requests[self.place].1;
                let waits = self.held.iter().any(|held| held.0 == key && held.1 < until);
                if waits {
                    self.place += 1;
                } else {
                    self.requests.remove(self.place);
                }
                continue;
            }
            let last = self.held.iter().filter(wanted).nth(numbers.len() - 1).unwrap().1;
            self.held.retain(|held| held.0 != key || held.1 > last);
            if self.count(key) == 0 {
                self.requests[self.place].1 = 0; // what is held from now on was not asked for
            }
            let decisions = self.process(&numbers);
            self.dispatch(&numbers, &decisions);
        }
    }

    fn run(mut self) -> Seen {
        let (mut next, burst) = (0, self.decider.script.burst);
        let mut waiting = VecDeque::new();
        for arrivals in self.decider.script.arrivals.clone() {
            for _ in 0..arrivals {
                if usize::from(next) < self.decider.script.decisions.len() {
                    waiting.push_back(next);
                    next += 1;
                }
            }
            self.resume();
            let numbers: Vec<u8> = waiting.drain(..burst.min(waiting.len())).collect();
            if !numbers.is_empty() {
                let decisions = self.process(&numbers);
                self.resume();
                self.dispatch(&numbers, &decisions);
            }
            self.decider.in_turn().into_iter().for_each(|action| self.act(action));
            self.resume();
        }
        self.seen
    }
}

fn act(seen: &mut Seen, turn: &mut Turn, actions: Vec<Action>) {
    for action in actions {
        seen.answers.push(match action {
            Action::Resume(number) => turn.resume(key(number)),
            Action::Discard(number) => turn.discard(key(number)),
        });
    }
}

fn in_a_lane(script: &Script) -> Seen {
    let both = Rc::new(RefCell::new((Decider::new(script), Seen::default())));
    let (one, other) = (Rc::clone(&both), Rc::clone(&both));
    let process = move |packets: &mut [Packet], turn: &mut Turn| {
        let (decider, seen) = &mut *one.borrow_mut();
        seen.shown.push(packets.iter().map(|packet| packet.bytes()[0]).collect());
        for packet in packets {
            packet.set_verdict(match decider.decide(packet.bytes()[0]) {
                Decision::Hold(number) => Verdict::Hold(key(number)),
                Decision::Send => FORWARD,
                Decision::Drop => Verdict::Drop,
            });
        }
        act(seen, turn, decider.in_process());
    };
    let in_turn = move |turn: &mut Turn| {
        let (decider, seen) = &mut *other.borrow_mut();
        act(seen, turn, decider.in_turn());
    };
    let (packets, per_key) = script.limits;
    let mut rig =
        rig(Two(process, in_turn), Sizes { burst: script.burst, packets, per_key, ..SIZES });
    let mut next = 0;
    for arrivals in &script.arrivals {
        for _ in 0..*arrivals {
            if usize::from(next) < script.decisions.len() {
                rig.arrive(0, &[next; 20]);
                next += 1;
            }
        }
        rig.lane.turn();
    }
    rig.close();
    let mut seen = std::mem::take(&mut both.borrow_mut().1);
    seen.sent = rig.sent().into_iter().map(|bytes| bytes[0]).collect();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_does_what_the_model_does(script in script()) {
        let decider = Decider::new(&script);
        let model = Model {
            decider, held: vec![], requests: vec![], place: 0, serial: 1, seen: Seen::default(),
        };
        prop_assert_eq!(in_a_lane(&script), model.run());
    }

    /// The way it is meant: a key is closed, its packets are held; it opens, they are resumed, and
    /// go out before those that come later.
    #[test]
    fn packets_of_a_key_leave_in_the_order_of_their_arrival(
        packets in proptest::collection::vec(0..KEYS as u8, 1..250),
        changes in proptest::collection::vec(
            (any::<bool>(), proptest::option::of((0..KEYS as usize, any::<bool>()))), 1..200,
        ),
        burst in 1..9_usize,
    ) {
        let open = Rc::new(RefCell::new([false; KEYS as usize]));
        let changes = Rc::new(RefCell::new(changes.into_iter()));
        let change = {
            let open = Rc::clone(&open);
            move |turn: &mut Turn, place: bool| {
                let mut changes = changes.borrow_mut();
                let next = changes.as_slice().first().copied();
                let Some((where_, change)) = next.filter(|next| next.0 == place) else { return };
                let _ = (changes.next(), where_);
                let Some((number, opens)) = change else { return };
                open.borrow_mut()[number] = opens;
                if opens {
                    turn.resume(key(number as u32));
                }
            }
        };
        let (in_process, in_turn) = (change.clone(), change);
        let is_open = Rc::clone(&open);
        let mut newest = -1;
        let process = move |packets: &mut [Packet], turn: &mut Turn| {
            // Nothing changes while packets are shown again: they would change places.
            let number = i32::from(packets[0].bytes()[1]);
            if number > newest {
                newest = number;
                in_process(turn, true);
            }
            for packet in packets {
                let number = packet.bytes()[0];
                let open = is_open.borrow()[usize::from(number)];
                packet.set_verdict(if open { FORWARD } else { Verdict::Hold(key(number.into())) });
            }
        };
        let sizes = Sizes { burst, packets: 256, per_key: 256, ..SIZES };
        let mut rig = rig(Two(process, move |turn: &mut Turn| in_turn(turn, false)), sizes);
        for (number, key) in packets.iter().enumerate() {
            rig.arrive(0, &[*key, number as u8]);
            if number % 3 == 0 {
                rig.lane.turn();
            }
        }
        for _ in 0..260 {
            rig.lane.turn();
        }
        for key in 0..KEYS as u8 {
            let sent: Vec<_> = rig.sent().into_iter().filter(|it| it[0] == key).collect();
            let arrived = packets.iter().enumerate().filter(|(_, it)| **it == key);
            let arrived: Vec<_> = arrived.map(|(number, it)| vec![*it, number as u8]).collect();
            prop_assert_eq!(&sent, &arrived[..sent.len()], "key {}", key);
            prop_assert!(sent.len() == arrived.len() || !open.borrow()[usize::from(key)]);
        }
        rig.close();
    }
}
