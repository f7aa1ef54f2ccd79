//! Exchange between real threads while shards migrate, in both threading models: one key, one lane.

mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastlane_sharding::MigrationError;
use fastlane_table::counters::{Counters, LaneCounter, PortCounter};

use world::{Built, PORTS, Shape, World, build, run};

const TOGETHER: Shape = Shape { lanes: 3, io: 0, ported: 3, by_application: false, ring: 1024 };
const APART: Shape = Shape { lanes: 4, io: 2, ported: 0, by_application: false, ring: 1024 };

fn total(counters: &Counters, counter: PortCounter) -> u64 {
    (0..PORTS).map(|port| counters.port_total(port, counter)).sum()
}

/// Number of changes that are only the first assignments of all flows; a test needs more.
const FEWEST_CHANGES: u64 = world::FLOWS as u64;

/// Returns the duration of a test.
fn time() -> Duration {
    let soak = std::env::var_os("FASTLANE_SOAK").is_some();
    Duration::from_millis(if soak { 60_000 } else { 1_500 })
}

/// Checks that each flow is processed by one lane at a time, and that its packets are processed and
/// sent in order without losses.
#[track_caller]
fn shards_move(shape: Shape) {
    let mut moves = 0;
    let Built { world, counters, lanes, mover } = build(shape);
    let kept = std::sync::Arc::clone(&world);
    let counters = run(Built { world, counters, lanes, mover }, |world, mover, _| {
        let (begin, owners) = (Instant::now(), shape.owners());
        let mut random = 7_usize;
        // Longer on a busy machine, until enough shards have moved.
        let continues = |moves| {
            let took = begin.elapsed();
            let is_enough = moves > 20 && world.changes.load(Ordering::Relaxed) > FEWEST_CHANGES;
            took < time() || (!is_enough && took < Duration::from_secs(60))
        };
        while continues(moves) && !world.stop.load(Ordering::Relaxed) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (shard, to) = ((random >> 33) as u8, owners[(random >> 41) % owners.len()]);
            match mover.move_shard(shard, to) {
                Ok(()) => moves += 1,
                Err(MigrationError::Stuck(lane)) => println!("lane {lane} had no CPU in time"),
                Err(other) => panic!("{other:?}"),
            }
        }
    });
    let drops = [PortCounter::DropPassFull, PortCounter::DropPark, PortCounter::DropNoPort];
    assert_eq!(drops.map(|counter| total(&counters, counter)), [0; 3], "{shape:?}");
    let received = total(&counters, PortCounter::ReceivedPackets);
    assert_eq!(total(&counters, PortCounter::ReceivedBytes), 70 * received);
    let verdicts = [
        PortCounter::VerdictReflect,
        PortCounter::VerdictForward,
        PortCounter::VerdictKernel,
        PortCounter::VerdictDrop,
    ];
    assert_eq!(verdicts.map(|counter| total(&counters, counter)).iter().sum::<u64>(), received);
    assert!(total(&counters, PortCounter::PassedPackets) > 1000, "packets are passed");
    if !shape.by_application {
        assert!(total(&counters, PortCounter::VerdictKernel) > 100, "fragments go to Linux");
    }
    let parked: u64 =
        (0..shape.lanes).map(|lane| counters.lane(lane).load(LaneCounter::ParkedPackets)).sum();
    let changes = kept.changes.load(Ordering::Relaxed);
    println!("{shape:?}: {received} packets, {moves} moves, {parked} parked, {changes} changes");
    assert!(moves > 20 && changes > FEWEST_CHANGES && parked > 0);
}

#[test]
fn shards_move_between_lanes_that_have_all() {
    shards_move(TOGETHER);
    shards_move(Shape { lanes: 2, ported: 2, by_application: true, ..TOGETHER });
}

#[test]
fn shards_move_to_lanes_without_ports() {
    shards_move(Shape { ported: 1, by_application: true, ..TOGETHER });
    shards_move(Shape { ported: 2, ..TOGETHER });
}

#[test]
fn shards_move_between_workers() {
    shards_move(APART);
}

#[test]
fn shards_move_between_workers_of_one_lane_with_ports() {
    shards_move(Shape { lanes: 4, io: 1, ..APART });
}

/// Checks that an application which does not return delays only the flows of its own lane, and that
/// its shards stay.
#[track_caller]
fn one_is_stuck(shape: Shape) {
    let stuck = *shape.owners().last().unwrap();
    let built = build(shape);
    // Before the first packet: a short ring may be full although no lane is stuck.
    built.world.stuck.store(stuck, Ordering::Relaxed);
    let counters = run(built, |world: &World, mover, counters| {
        let progress = |times: usize| {
            let end = Instant::now() + Duration::from_secs(20);
            let before = world.through();
            while world.through() < before + 1000 * times as u64 {
                assert!(Instant::now() < end, "the other lanes continue");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        progress(5);
        let shard = (0..=255).find(|shard| mover.shards().owner(*shard) == stuck).unwrap();
        let to = shape.owners()[0];
        assert_eq!(mover.move_shard(shard, to), Err(MigrationError::Stuck(stuck)));
        assert_eq!(mover.shards().owner(shard), stuck);
        assert_eq!(mover.move_shard(shard, 99), Err(MigrationError::NoSuchLane(99)));
        progress(5);
        assert!(
            total(counters, PortCounter::DropPassFull) > 0,
            "its own packets are dropped and counted"
        );
    });
    for lane in shape.owners().into_iter().filter(|lane| *lane != stuck) {
        assert!(counters.lane(lane).load(LaneCounter::PoolFree) > 2048, "frames are left");
    }
}

#[test]
fn a_stuck_worker_costs_only_its_own_keys() {
    one_is_stuck(Shape { lanes: 3, io: 1, ring: 256, ..APART });
}
