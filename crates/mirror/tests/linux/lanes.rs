//! Test of a lane that looks up while routes change.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::PortId;
use fastlane_mirror::{Follower, Mirror, MirrorSettings, Prefix, RouteLookup, model};
use fastlane_table::counters::{Counters, LaneCounter};
use fastlane_table::{AnyState, EntryId, Guard, LaneState, Spec, State};
use fastlane_testing::lanes_of;

use crate::rig::{self, ROUTERS};
use crate::scale::script;

const DESTINATIONS: u32 = 64;

fn destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x1400_0001 + (number << 8))
}

/// Returns the routers that routes to a destination may have.
fn routers(number: u32) -> [usize; 2] {
    if number.is_multiple_of(2) { [0, 0] } else { [1, 2] }
}

/// Results of a lane.
#[derive(Debug, Default)]
struct LaneResults {
    turns: u64,
    forwarded: u64,
    asked: u64,
    wrong: Vec<String>,
}

/// Lane state by route number: packets, and the destination they belong to.
type Counts = LaneState<2>;

/// Counts a packet. Returns false if the number's counters belong to another destination.
fn count(counts: &Counts, route: u32, number: usize) -> bool {
    let (words, owner) = (counts.at(EntryId(route)), number as u64 + 1);
    let before = words.get(1);
    words.add(0, 1);
    words.set(1, owner);
    before == owner || (before == 0 && words.get(0) == 1)
}

fn lane(mirror: &Mirror, counts: &Counts, counters: &Counters, stop: &AtomicBool) -> LaneResults {
    let counters = counters.lane(0);
    let hashes = [0; DESTINATIONS as usize];
    let destinations: Vec<_> = (0..DESTINATIONS).map(destination).collect();
    let mut answers =
        vec![RouteLookup::Fallback(fastlane_mirror::FallbackReason::NoTable); hashes.len()];
    let mut results = LaneResults::default();
    while !stop.load(Ordering::Relaxed) {
        // SAFETY: the writer's readers count this lane, and it publishes its turn when nothing is
        // borrowed any more.
        let guard = unsafe { Guard::new() };
        mirror.route4_many(&guard, &destinations, &hashes, &mut answers);
        for (number, answer) in answers.iter().enumerate() {
            let RouteLookup::Forward(next) = answer else {
                results.asked += 1;
                continue;
            };
            results.forwarded += 1;
            let may = routers(number as u32).map(|router| ROUTERS[router]);
            let port = PortId(u16::from(next.destination == ROUTERS[2]));
            if !may.contains(&next.destination) || next.port != port || next.mtu != 1500 {
                results.wrong.push(format!("{}: {next:?}", destination(number as u32)));
            }
            if !count(counts, next.route, number) {
                results.wrong.push(format!("counts of another: {next:?}"));
            }
        }
        results.turns += 1;
        counters.publish(LaneCounter::Turn, results.turns);
    }
    counters.publish(LaneCounter::Ended, 1);
    results
}

/// Reuses group ids many times: no packet takes the path of another route or is counted with it.
#[test]
fn no_packet_takes_a_way_that_its_route_never_had() {
    if !rig::namespace("no_packet_takes_a_way_that_its_route_never_had") {
        return;
    }
    let counters = Counters::create(1, 2).unwrap();
    let readers = Arc::new(lanes_of(&counters));
    let settings = MirrorSettings { count_routes: true, groups: 56, ..rig::settings() };
    let mut follower = Follower::open(settings, &rig::ports(), &readers).unwrap();
    let mirror = Mirror::attach(follower.memories()).unwrap();
    let memory = Spec::state::<2>("routes", mirror.route_numbers(), 1).create().unwrap();
    follower.count_in(AnyState::attach(&memory).unwrap());
    let counts = State::attach(&memory).unwrap().lane(0);
    let (stop, rounds) = (AtomicBool::new(false), rounds());
    let results = std::thread::scope(|scope| {
        let lane = scope.spawn(|| lane(&mirror, &counts, &counters, &stop));
        for round in 0..rounds {
            let mut changes = script(&lines(round));
            while changes.try_wait().unwrap().is_none() {
                follower.step().unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
            follower.step().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        lane.join().unwrap()
    });
    everything_found_room(&mut follower, &mirror);
    let statistics = follower.statistics();
    println!("{} turns, {} forwarded, {} asked", results.turns, results.forwarded, results.asked);
    println!("{statistics:?}");
    assert!(results.wrong.is_empty(), "{}: {}", results.wrong.len(), results.wrong[0]);
    assert!(results.forwarded > 1000 && results.asked > 1000, "{results:?}");
    assert_eq!(statistics.overruns, 0);
}

/// Checks that no id is lost: in the end each route is forwarded.
fn everything_found_room(follower: &mut Follower, mirror: &Mirror) {
    let end = Instant::now() + Duration::from_secs(10);
    while follower.statistics().occupancy.waiting > 0 {
        follower.step().unwrap();
        assert!(Instant::now() < end, "{:?}", follower.statistics());
    }
    // SAFETY: the writer is in this thread and does not write while a lookup lasts.
    let guard = unsafe { Guard::new() };
    for number in 0..DESTINATIONS {
        let address = destination(number);
        let prefix = Prefix::new(address.into(), 24);
        let has_route = !follower.state().routes(model::MAIN, &prefix).is_empty();
        let is_forwarded = matches!(mirror.route4(&guard, address, 0), RouteLookup::Forward(_));
        assert_eq!(is_forwarded, has_route, "{address}");
    }
}

fn rounds() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 200 } else { 10 }
}

/// Returns `ip` commands that add and remove routes in a different order each round.
fn lines(round: u32) -> String {
    let routers_of = ["10.0.1.2", "10.0.1.3", "10.0.2.2"];
    let mut lines = String::new();
    for step in 0..4 * DESTINATIONS {
        let number = step.wrapping_mul(2 * round + 5).wrapping_add(round) % DESTINATIONS;
        let router = routers_of[routers(number)[(step / 7 % 2) as usize]];
        let prefix = Ipv4Addr::from_bits(destination(number).to_bits() & !0xff);
        lines += &match (step / DESTINATIONS + number) % 3 {
            0 => format!("route del {prefix}/24\n"),
            _ => format!("route replace {prefix}/24 via {router}\n"),
        };
    }
    lines
}
