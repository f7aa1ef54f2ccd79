//! DPDK for tests: one environment per program, and a peer that is a DPDK queue.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue};
use fastlane_dpdk::{
    Device, DeviceSettings, DpdkQueue, Environment, EnvironmentSettings, Error, HugePages,
    LaneMemory,
};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use fastlane_testing::{Peer, Spec, skip};

/// Memory for the frames of all concurrent tests, in MiB.
const MEMORY: usize = 512;
/// Maximum length of a packet in a frame.
pub const ROOM: usize = 2048;

/// Returns the environment, which the first caller starts; `None` if the test is skipped.
pub fn environment() -> Option<Arc<Environment>> {
    environment_with(HugePages::None)
}

/// Returns the environment, started with this kind of pages if it does not run yet.
pub fn environment_with(huge_pages: HugePages) -> Option<Arc<Environment>> {
    environment_of(huge_pages, &[])
}

/// Returns the environment, started with this kind of pages and these cards if it does not run yet.
pub fn environment_of(huge_pages: HugePages, cards: &[String]) -> Option<Arc<Environment>> {
    static STARTED: OnceLock<Option<Arc<Environment>>> = OnceLock::new();
    let start = || {
        let pci = cards.to_vec();
        let settings =
            EnvironmentSettings { huge_pages, pci, memory: MEMORY, ..Default::default() };
        match Environment::start(&settings) {
            Ok(environment) => Some(environment),
            Err(error @ (Error::NoPlugin { .. } | Error::Broken { .. })) => {
                skip("dpdk", &error.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    };
    STARTED.get_or_init(start).clone()
}

/// Returns a number that no other device of this process has.
pub fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Creates the memory for `queues` queues of the default size.
pub fn memory(environment: &Arc<Environment>, pool: &mut Pool, queues: usize) -> LaneMemory {
    let frames = LaneMemory::frames_needed(queues * 2048, 256);
    LaneMemory::new(environment, pool, frames, ROOM, -1).expect("memory for DPDK")
}

/// Returns the pools of the lanes of a case, each with a DPDK memory.
pub fn lanes(environment: &Arc<Environment>, spec: &Spec) -> Vec<(Pool, LaneMemory)> {
    let lane = |_| {
        let mut pool = spec.pool();
        let memory = memory(environment, &mut pool, spec.queues / spec.lanes);
        (pool, memory)
    };
    (0..spec.lanes).map(lane).collect()
}

/// Opens a device whose queues are assigned to the lanes in turn.
pub fn open(
    environment: &Arc<Environment>,
    settings: &DeviceSettings,
    lanes: &[(Pool, LaneMemory)],
    queues: usize,
) -> Device {
    let memories: Vec<_> = (0..queues).map(|queue| lanes[queue % lanes.len()].1.clone()).collect();
    Device::open(environment, settings, &memories, &Rules::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns all queues of a device.
pub fn queues(device: &mut Device) -> Vec<DpdkQueue> {
    (0..device.queues())
        .map(|number| device.queue(Spec::PORT, number).expect("a queue").expect("asked once"))
        .collect()
}

/// Waits until the link has the wanted state.
#[track_caller]
pub fn wait_for_link(device: &Device, up: bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while device.link_up() != up {
        assert!(
            Instant::now() < end,
            "the link does not become {}",
            if up { "up" } else { "down" }
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A peer that is a DPDK device in the same process.
pub struct DpdkPeer {
    queues: Vec<DpdkQueue>,
    next: usize,
    burst: Burst,
    seen: usize,
    pool: Pool,
    pub device: Device,
}

impl DpdkPeer {
    pub fn open(environment: &Arc<Environment>, settings: &DeviceSettings, queues: usize) -> Self {
        let memory_of_frames = SharedMemory::create("peer", 4096).expect("memory");
        let mut pool = Pool::new(memory_of_frames, 4096, 64).expect("a pool");
        let memory = memory(environment, &mut pool, queues);
        let memories = vec![memory; queues];
        let mut device = Device::open(environment, settings, &memories, &Rules::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let queues = self::queues(&mut device);
        Self { queues, next: 0, burst: Burst::new(64), seen: 0, pool, device }
    }
}

impl Peer for DpdkPeer {
    fn send(&mut self, frame: &[u8]) -> bool {
        let at = self.next % self.queues.len();
        let queue = &mut self.queues[at];
        let Some(mut packet) = queue.alloc_packet(frame.len(), &mut self.pool) else {
            return false;
        };
        packet.bytes_mut().copy_from_slice(frame);
        let sent = queue.transmit(std::slice::from_mut(&mut packet), &mut self.pool).packets == 1;
        queue.flush(&mut self.pool);
        self.pool.release(&mut packet);
        self.next += usize::from(sent);
        sent
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + within;
        loop {
            if self.seen < self.burst.len() {
                self.seen += 1;
                return Some(self.burst.packets()[self.seen - 1].bytes().to_vec());
            }
            self.burst.clear(&mut self.pool);
            self.seen = 0;
            for queue in &mut self.queues {
                queue.receive(&mut self.burst, &mut self.pool);
            }
            if self.burst.is_empty() && Instant::now() >= end {
                return None;
            }
        }
    }
}

impl Drop for DpdkPeer {
    fn drop(&mut self) {
        self.burst.clear(&mut self.pool);
        for queue in &mut self.queues {
            queue.close(&mut self.pool);
        }
    }
}

/// Allocates a packet of a queue with these bytes.
pub fn packet(queue: &mut DpdkQueue, pool: &mut Pool, bytes: &[u8]) -> Packet {
    let mut packet = queue.alloc_packet(bytes.len(), pool).expect("a frame");
    packet.bytes_mut().copy_from_slice(bytes);
    packet
}

/// Port of tests without a rig.
pub const PORT: PortId = PortId(0);
