//! Random sequences against a model that has no lists, slots or rounds: only serial numbers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use fastlane_core::{Packet, Turn, Verdict};
use proptest::prelude::*;

use super::bench::{AppOf, SIZES, Sizes, bench};
use super::{FORWARD, key};

const KEYS: u32 = 5;

/// Call that the application makes.
#[derive(Clone, Copy, Debug)]
enum Action {
    Resume(u32),
    Discard(u32),
}

/// Verdict of the application for a packet.
#[derive(Clone, Copy, Debug)]
enum Decision {
    Hold(u32),
    Send,
    Drop,
}

#[derive(Clone, Debug)]
struct Script {
    /// Decisions for each packet, in the order in which it is shown. After the last it is sent.
    decisions: Vec<Vec<Decision>>,
    /// Actions of each call of `process` and of `turn`, in order.
    in_process: Vec<Vec<Action>>,
    in_turn: Vec<Vec<Action>>,
    /// Number of packets that arrive before each turn.
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

/// Observable behaviour: the packet numbers of each call of `process`, the result of each action,
/// and the sent packets.
#[derive(Debug, Default, PartialEq)]
struct Trace {
    shown: Vec<Vec<u8>>,
    results: Vec<usize>,
    sent: Vec<u8>,
}

/// Decisions of the script, for the application and for the model.
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

/// Model: packets as (key, serial number, number), requests as (key, serial number).
struct Model {
    decider: Decider,
    held: Vec<(u32, usize, u8)>,
    requests: Vec<(u32, usize)>,
    /// Position of a round in the requests.
    position: usize,
    serial: usize,
    seen: Trace,
}

impl Model {
    fn count(&self, key: u32) -> usize {
        self.held.iter().filter(|held| held.0 == key).count()
    }

    fn act(&mut self, action: Action) {
        let result = match action {
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
                        self.position -= usize::from(at < self.position);
                    }
                }
                count
            }
        };
        self.seen.results.push(result);
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
        self.position = 0;
        while let Some(&(key, until)) = self.requests.get(self.position) {
            let until = until.min(bound);
            let wanted = |held: &&(u32, usize, u8)| held.0 == key && held.1 < until;
            let burst = self.decider.script.burst;
            let numbers: Vec<u8> =
                self.held.iter().filter(wanted).take(burst).map(|held| held.2).collect();
            if numbers.is_empty() {
                // Packets that were held in this round wait for the next.
                let until = self.requests[self.position].1;
                let waits = self.held.iter().any(|held| held.0 == key && held.1 < until);
                if waits {
                    self.position += 1;
                } else {
                    self.requests.remove(self.position);
                }
                continue;
            }
            let last = self.held.iter().filter(wanted).nth(numbers.len() - 1).unwrap().1;
            self.held.retain(|held| held.0 != key || held.1 > last);
            if self.count(key) == 0 {
                self.requests[self.position].1 = 0; // later packets are not requested
            }
            let decisions = self.process(&numbers);
            self.dispatch(&numbers, &decisions);
        }
    }

    fn run(mut self) -> Trace {
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

fn act(seen: &mut Trace, turn: &mut Turn, actions: Vec<Action>) {
    for action in actions {
        seen.results.push(match action {
            Action::Resume(number) => turn.resume(key(number)),
            Action::Discard(number) => turn.discard(key(number)),
        });
    }
}

fn run_in_lane(script: &Script) -> Trace {
    let both = Rc::new(RefCell::new((Decider::new(script), Trace::default())));
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
    let mut bench =
        bench(AppOf(process, in_turn), Sizes { burst: script.burst, packets, per_key, ..SIZES });
    let mut next = 0;
    for arrivals in &script.arrivals {
        for _ in 0..*arrivals {
            if usize::from(next) < script.decisions.len() {
                bench.arrive(0, &[next; 20]);
                next += 1;
            }
        }
        bench.lane.turn();
    }
    bench.close();
    let mut seen = std::mem::take(&mut both.borrow_mut().1);
    seen.sent = bench.sent().into_iter().map(|bytes| bytes[0]).collect();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_behaves_as_the_model(script in script()) {
        let decider = Decider::new(&script);
        let model = Model {
            decider, held: vec![], requests: vec![], position: 0, serial: 1, seen: Trace::default(),
        };
        prop_assert_eq!(run_in_lane(&script), model.run());
    }

    // The intended use: packets of a closed key are held. When the key opens they are resumed, and
    // leave before later ones.
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
            move |turn: &mut Turn, in_process: bool| {
                let mut changes = changes.borrow_mut();
                let next = changes.as_slice().first().copied();
                let Some((_, change)) = next.filter(|next| next.0 == in_process) else { return };
                changes.next();
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
            // No key changes while packets are resumed, or their order would change.
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
        let mut bench = bench(AppOf(process, move |turn: &mut Turn| in_turn(turn, false)), sizes);
        for (number, key) in packets.iter().enumerate() {
            bench.arrive(0, &[*key, number as u8]);
            if number % 3 == 0 {
                bench.lane.turn();
            }
        }
        for _ in 0..260 {
            bench.lane.turn();
        }
        for key in 0..KEYS as u8 {
            let sent: Vec<_> = bench.sent().into_iter().filter(|it| it[0] == key).collect();
            let arrived = packets.iter().enumerate().filter(|(_, it)| **it == key);
            let arrived: Vec<_> = arrived.map(|(number, it)| vec![*it, number as u8]).collect();
            prop_assert_eq!(&sent, &arrived[..sent.len()], "key {}", key);
            prop_assert!(sent.len() == arrived.len() || !open.borrow()[usize::from(key)]);
        }
        bench.close();
    }
}
