//! Lanes with an exchange, over ports that generate numbered packets of flows and check the sent
//! ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::{
    App, Burst, Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Sent, Turn, Verdict,
};
use fastlane_local::ring;
use fastlane_sharding::{
    ExchangeConfig, FrameShard, LaneBy, ShardClassifier, ShardExchange, ShardMigration, Shards,
};
use fastlane_steer::LaneKey;
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};

pub(crate) const FLOWS: usize = 96;
pub(crate) const PORTS: usize = 2;
/// Maximum number of packets of one queue in flight: less than a ring or a migration buffer holds.
const WINDOW: u64 = 192;
const FRAME: usize = 1024;
/// Length of a packet, in bytes.
const LENGTH: usize = 70;

/// State that all lanes share.
pub(crate) struct World {
    /// For each flow, true while a lane uses its state.
    busy: Vec<AtomicBool>,
    /// Last lane of each flow.
    owner: Vec<AtomicUsize>,
    /// Number of changes of the lane of a flow.
    pub(crate) changes: AtomicU64,
    /// Last number that the application saw, by flow and queue of arrival.
    seen: Vec<AtomicU64>,
    /// Last number that was sent, by flow and queue of arrival.
    left: Vec<AtomicU64>,
    /// Number of sent packets, by queue of arrival.
    through: Vec<AtomicU64>,
    /// True once the ports generate no more packets.
    pub(crate) quiet: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// Lane whose application does not return.
    pub(crate) stuck: AtomicUsize,
}

impl World {
    fn new(lanes: usize) -> Self {
        let numbers = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            busy: (0..FLOWS).map(|_| AtomicBool::new(false)).collect(),
            owner: (0..FLOWS).map(|_| AtomicUsize::new(usize::MAX)).collect(),
            changes: AtomicU64::new(0),
            seen: numbers(FLOWS * lanes * PORTS),
            left: numbers(FLOWS * lanes * PORTS),
            through: numbers(lanes * PORTS),
            quiet: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            stuck: AtomicUsize::new(usize::MAX),
        }
    }

    /// Returns the number of sent packets of all queues.
    pub(crate) fn through(&self) -> u64 {
        self.through.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Checks that a number follows the last one. Numbers may be missing only if a lane is stuck.
    fn next(&self, of: &[AtomicU64], tag: &Tag, what: &str) {
        let last = &of[tag.flow * self.through.len() + tag.queue];
        let before = last.swap(tag.number, Ordering::Relaxed);
        let lossless = self.stuck.load(Ordering::Relaxed) == usize::MAX;
        let in_order = if lossless { tag.number == before + 1 } else { tag.number > before };
        assert!(in_order, "{what}: {tag:?} after {before}");
    }
}

/// Content of a packet.
#[derive(Debug)]
struct Tag {
    flow: usize,
    queue: usize,
    number: u64,
}

impl Tag {
    fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        Self { flow: word(42) as usize, queue: word(50) as usize, number: word(58) }
    }
}

/// Creates a UDP frame of a flow in one direction. A fragment has no valid tag.
pub(crate) fn frame(
    flow: usize,
    back: bool,
    fragment: bool,
    queue: usize,
    number: u64,
) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame[20] = if fragment { 0x20 } else { 0x40 };
    frame[23] = 17;
    let ends = [[10, 1, 0, flow as u8], [192, 0, 2, 7]];
    let ports = [1024 + flow as u16, 2152];
    let (one, other) = if back { (1, 0) } else { (0, 1) };
    frame[26..30].copy_from_slice(&ends[one]);
    frame[30..34].copy_from_slice(&ends[other]);
    frame[34..36].copy_from_slice(&ports[one].to_be_bytes());
    frame[36..38].copy_from_slice(&ports[other].to_be_bytes());
    frame[42..50].copy_from_slice(&flow.to_le_bytes());
    frame[50..58].copy_from_slice(&queue.to_le_bytes());
    frame[58..66].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Queue that generates packets of random flows and checks the packets that it sends.
struct Generator {
    world: Arc<World>,
    port: PortId,
    queue: usize,
    random: u64,
    made: u64,
    numbers: [u64; FLOWS],
    fragments: bool,
}

impl Generator {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

impl Queue for Generator {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let through = self.world.through[self.queue].load(Ordering::Relaxed);
        let window = match self.world.stuck.load(Ordering::Relaxed) {
            usize::MAX => (through + WINDOW).saturating_sub(self.made),
            _ => u64::MAX,
        };
        if self.world.quiet.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..window.min(burst.room() as u64) {
            let Some(mut packet) = pool.alloc_packet(LENGTH, self.port) else { return };
            let random = self.random();
            let flow = (random >> 8) as usize % FLOWS;
            let fragment = self.fragments && random.is_multiple_of(16);
            self.numbers[flow] += u64::from(!fragment);
            let content =
                self::frame(flow, random & 64 != 0, fragment, self.queue, self.numbers[flow]);
            packet.bytes_mut().copy_from_slice(&content);
            burst.push(packet).unwrap();
            // Fragments are not sent.
            self.made += u64::from(!fragment);
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        for packet in packets {
            let tag = Tag::read(packet.bytes());
            self.world.next(&self.world.left, &tag, "leaves");
            self.world.through[tag.queue].fetch_add(1, Ordering::Relaxed);
            sent.taken += 1;
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
            pool.release(packet);
        }
        sent
    }
}

/// Application with a state for each flow, which only one lane may use at a time.
pub(crate) struct Stateful {
    world: Arc<World>,
    lane: usize,
    by_application: bool,
}

impl App for Stateful {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        let port = packets[0].port();
        while self.world.stuck.load(Ordering::Relaxed) == self.lane
            && !self.world.quiet.load(Ordering::Relaxed)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        for packet in packets {
            assert_eq!(packet.port(), port, "packets of one port together");
            assert_eq!(packet.bytes()[20] & 0x20, 0, "fragments go to Linux");
            let tag = Tag::read(packet.bytes());
            let is_own = !self.by_application || turn.owns(tag.flow as u8);
            assert!(is_own, "lane {} is shown {tag:?}", self.lane);
            let before = self.world.owner[tag.flow].swap(self.lane, Ordering::Relaxed);
            self.world.changes.fetch_add(u64::from(before != self.lane), Ordering::Relaxed);
            assert!(!self.world.busy[tag.flow].swap(true, Ordering::Acquire), "two at {tag:?}");
            self.world.next(&self.world.seen, &tag, "is shown");
            self.world.busy[tag.flow].store(false, Ordering::Release);
            packet.set_verdict(match port {
                PortId(0) => Verdict::Reflect,
                _ => Verdict::Forward(PortId(tag.number as u16 % 2)),
            });
        }
    }

    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        assert!((0..=u8::MAX).any(|shard| !turn.owns(shard)), "no lane owns all");
        Tag::read(packet.bytes()).flow as u8
    }
}

struct ByFlow;

impl ShardClassifier for ByFlow {
    fn classify(&mut self, frame: &[u8]) -> FrameShard {
        match LaneKey::Flow.of(frame) {
            fastlane_steer::Keyed::Shard(shard) => FrameShard::Shard(shard),
            fastlane_steer::Keyed::None => FrameShard::None,
            fastlane_steer::Keyed::Fragment => FrameShard::Fragment,
        }
    }
}

fn pool(frames: usize) -> Pool {
    let memory = SharedMemory::create("exchange-test", frames * FRAME).unwrap();
    Pool::new(memory, FRAME, 64).unwrap()
}

/// Roles of the lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) lanes: usize,
    /// Number of lanes that have ports and no application; 0 if lanes have both.
    pub(crate) io: usize,
    /// Number of lanes that have ports, if lanes with ports have the application too.
    pub(crate) ported: usize,
    pub(crate) by_application: bool,
    pub(crate) ring: usize,
}

impl Shape {
    pub(crate) fn arrivals(self) -> Vec<usize> {
        (0..if self.io > 0 { self.io } else { self.ported }).collect()
    }

    pub(crate) fn owners(self) -> Vec<usize> {
        (self.io..self.lanes).collect()
    }
}

pub(crate) struct Built {
    pub(crate) world: Arc<World>,
    pub(crate) counters: Counters,
    pub(crate) lanes: Vec<(Stateful, LaneConfig, ExchangeConfig)>,
    pub(crate) mover: ShardMigration,
}

pub(crate) fn build(shape: Shape) -> Built {
    let world = Arc::new(World::new(shape.lanes));
    let counters = Counters::create(shape.lanes, PORTS).unwrap();
    let doorbells = ring::doorbells(shape.lanes).unwrap();
    let memory = SharedMemory::create("shards", Shards::bytes(shape.lanes)).unwrap();
    let shards = Shards::new(&Arc::new(memory), shape.lanes, &shape.owners()).unwrap();
    let (arrivals, owners) = (shape.arrivals(), shape.owners());
    let mut rings: Vec<Vec<_>> =
        (0..shape.lanes).map(|_| (0..shape.lanes).map(|_| None).collect()).collect();
    for one in 0..shape.lanes {
        for other in one + 1..shape.lanes {
            let kinds = [one, other].map(|lane| lane < shape.io);
            if shape.io > 0 && kinds[0] == kinds[1] {
                continue;
            }
            let [here, there] =
                ring::lane_ring([&doorbells[one], &doorbells[other]], shape.ring, FRAME);
            rings[one][other] = Some(Box::new(here) as Box<dyn fastlane_sharding::LaneRing>);
            rings[other][one] = Some(Box::new(there) as Box<dyn fastlane_sharding::LaneRing>);
        }
    }
    let lanes = rings.into_iter().enumerate().map(|(number, rings)| {
        let has_ports = arrivals.contains(&number);
        let ports = (0..PORTS).map(|port| {
            let (world, port_id) = (Arc::clone(&world), PortId(port as u16));
            let queue = number * PORTS + port;
            let fragments = !shape.by_application;
            let random = 0x9e37_79b9_7f4a_7c15 ^ (queue as u64 + 1);
            let generator = Generator {
                world,
                port: port_id,
                queue,
                random,
                made: 0,
                numbers: [0; FLOWS],
                fragments,
            };
            let queues: Vec<Box<dyn Queue>> =
                if has_ports { vec![Box::new(generator)] } else { vec![] };
            Port { queues, kernel: None, filter: None, counters: counters.port(number, port) }
        });
        let parts = LaneConfig::new(pool(4096), ports.collect(), counters.lane(number));
        let parts = LaneConfig { idle: Idle::Adaptive, ..parts };
        let app = Stateful {
            world: Arc::clone(&world),
            lane: number,
            by_application: shape.by_application,
        };
        let lane_by = |_| match shape.by_application {
            true => LaneBy::Application,
            false => LaneBy::Key(Box::new(ByFlow)),
        };
        let exchange = ExchangeConfig {
            lane: number,
            rings,
            lane_by: (0..PORTS).map(lane_by).collect(),
            carriers: vec![(!has_ports).then(|| arrivals[number % arrivals.len()]); PORTS],
            has_application: owners.contains(&number),
            shards: shards.clone(),
            migration_pool: pool(1024),
        };
        (app, parts, exchange)
    });
    let lanes = lanes.collect();
    let wake = Box::new(move |lane: usize| doorbells[lane].ring());
    let mover = ShardMigration::new(shards, arrivals, owners, wake);
    Built { world, counters, lanes, mover }
}

/// Runs each lane in a thread, and `drive` in this one. After `drive` has returned, it waits until
/// all packets are sent or dropped, stops the lanes and checks that no frame is missing. Returns
/// the counters.
pub(crate) fn run(
    built: Built,
    drive: impl FnOnce(&World, &mut ShardMigration, &Counters),
) -> Counters {
    let Built { world, counters, lanes, mut mover } = built;
    std::thread::scope(|scope| {
        let _stop = StopOnPanic(&world);
        let threads: Vec<_> = lanes
            .into_iter()
            .map(|(app, parts, exchange)| {
                let world = Arc::clone(&world);
                scope.spawn(move || {
                    let _stop = StopOnPanic(&world);
                    let burst = parts.burst;
                    let mut lane = Lane::new(app, parts);
                    lane.join(Box::new(ShardExchange::new(exchange, burst)));
                    let missing = lane.run(&world.stop);
                    assert_eq!(missing, 0, "frames are missing");
                })
            })
            .collect();
        drive(&world, &mut mover, &counters);
        world.quiet.store(true, Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(20);
        let total =
            |counter| (0..PORTS).map(|port| counters.port_total(port, counter)).sum::<u64>();
        let losses = || {
            total(PortCounter::DropPassFull)
                + total(PortCounter::DropPark)
                + total(PortCounter::DropNoKernelPeer)
        };
        while Instant::now() < end
            && !world.stop.load(Ordering::Relaxed)
            && total(PortCounter::ReceivedPackets) != world.through() + losses()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        world.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(total(PortCounter::ReceivedPackets), world.through() + losses());
    });
    counters
}

struct StopOnPanic<'a>(&'a World);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.quiet.store(true, Ordering::Relaxed);
    }
}
