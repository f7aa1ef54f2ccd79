//! Cost of passing packets between lanes: CPU time per packet of both lanes together, over memory
//! ports, in alternating slices.
//!
//! `cargo run --release -p fastlane-sharding --example pass`

use std::sync::Arc;

use fastlane_core::{Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Verdict};
use fastlane_local::memory::Memory;
use fastlane_local::ring;
use fastlane_sharding::{
    ExchangeConfig, FrameShard, LaneBy, LaneRing, ShardClassifier, ShardExchange, Shards,
};
use fastlane_steer::LaneKey;
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};
use rustix::time::{ClockId, clock_gettime};

const FRAME_SIZE: usize = 2048;
/// Number of turns of each slice.
const TURNS: usize = 20_000;
const SLICES: usize = 31;

/// Measured distribution of packets.
#[derive(Clone, Copy, PartialEq)]
enum Distribution {
    /// No `lane-by`: the plain loop.
    Alone,
    /// By flow, and one lane owns all flows: the cost of key, shard and lane lookup.
    Own,
    /// Every other flow belongs to a lane without port: two copies and two rings for each packet.
    Half,
    /// All flows belong to the lane without port: master-worker.
    All,
}

struct ByFlow;

impl ShardClassifier for ByFlow {
    fn classify(&mut self, frame: &[u8]) -> FrameShard {
        match LaneKey::Flow.of(frame) {
            fastlane_steer::Keyed::Shard(shard) => FrameShard::Shard(shard),
            _ => FrameShard::None,
        }
    }
}

type App = fn(&mut Packet) -> Verdict;

fn pool(frames: usize) -> Pool {
    let memory = SharedMemory::create("pass", frames * FRAME_SIZE).expect("memory");
    Pool::new(memory, FRAME_SIZE, 192).expect("frames")
}

/// Creates a memory port with 64 UDP flows.
fn memory(pool: &mut Pool) -> Memory {
    let mut memory = Memory::new(PortId(0), 64);
    for flow in 0..64_u8 {
        let mut packet = pool.alloc_packet(60, PortId(0)).expect("a frame");
        let bytes = packet.bytes_mut();
        bytes.fill(0);
        bytes[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        bytes[23] = 17;
        bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 1, flow]);
        bytes[34..38].copy_from_slice(&[4, flow, 8, 104]);
        memory.transmit(std::slice::from_mut(&mut packet), pool);
    }
    memory
}

/// Creates two lanes, of which the first has the port.
fn lanes(distribution: Distribution) -> (Vec<Lane<App>>, Counters) {
    let counters = Counters::create(2, 1).expect("counters");
    let memory_of = |bytes| Arc::new(SharedMemory::create("pass", bytes).expect("memory"));
    let doorbells = ring::doorbells(2).expect("descriptors");
    let owners: &[usize] = match distribution {
        Distribution::Alone | Distribution::Own => &[0],
        Distribution::Half => &[0, 1],
        Distribution::All => &[1],
    };
    let shards = Shards::new(&memory_of(Shards::bytes(2)), 2, owners).expect("shards");
    let [here, there] = ring::lane_ring([&doorbells[0], &doorbells[1]], 1024, FRAME_SIZE);
    let mut rings: Vec<Vec<Option<Box<dyn LaneRing>>>> =
        vec![vec![None, Some(Box::new(here))], vec![Some(Box::new(there)), None]];
    let mut lane = |number: usize| {
        let mut pool = pool(2048);
        let queue = (number == 0).then(|| Box::new(memory(&mut pool)) as Box<dyn Queue>);
        let queues = queue.into_iter().collect();
        let ports =
            vec![Port { queues, kernel: None, filter: None, counters: counters.port(number, 0) }];
        let parts = LaneConfig::new(pool, ports, counters.lane(number));
        let app: App = |packet| {
            packet.bytes_mut()[..12].rotate_left(6);
            Verdict::Reflect
        };
        let mut lane = Lane::new(app, LaneConfig { idle: Idle::Busy, ..parts });
        if distribution != Distribution::Alone {
            let exchange = ExchangeConfig {
                lane: number,
                rings: std::mem::take(&mut rings[number]),
                lane_by: vec![LaneBy::Key(Box::new(ByFlow))],
                carriers: vec![(number == 1).then_some(0)],
                has_application: owners.contains(&number),
                shards: shards.clone(),
                migration_pool: self::pool(64),
            };
            lane.join(Box::new(ShardExchange::new(exchange, 32)));
        }
        lane
    };
    (vec![lane(0), lane(1)], counters)
}

fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() {
    let distributions = [
        (Distribution::Alone, "no lane-by"),
        (Distribution::Own, "by flow, all its own"),
        (Distribution::Half, "by flow, every other passed there and back"),
        (Distribution::All, "master-worker, all passed there and back"),
    ];
    let mut built: Vec<_> =
        distributions.iter().map(|(distribution, _)| lanes(*distribution)).collect();
    let mut costs = vec![Vec::new(); distributions.len()];
    for _ in 0..SLICES {
        for ((lanes, counters), costs) in built.iter_mut().zip(&mut costs) {
            let sent = || counters.port_total(0, PortCounter::SentPackets);
            let (before, start) = (sent(), cpu_time());
            for _ in 0..TURNS {
                lanes.iter_mut().for_each(|lane| {
                    lane.turn();
                });
            }
            costs.push((cpu_time() - start) as f64 / (sent() - before) as f64);
        }
    }
    for ((_, name), costs) in distributions.iter().zip(&mut costs) {
        costs.sort_by(f64::total_cmp);
        let [low, median, high] = [SLICES / 4, SLICES / 2, SLICES * 3 / 4].map(|it| costs[it]);
        println!("{name}: {median:.2} ns per packet (quartiles {low:.2} to {high:.2})");
    }
}
