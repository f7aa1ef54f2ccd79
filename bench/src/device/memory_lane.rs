//! The whole loop of a lane on a memory port, against the same work in plain C.

use std::time::Duration;

use fastlane_core::{App, Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Verdict};
use fastlane_local::memory::Memory;
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};
use fastlane_wire::Ethernet;

use crate::Result;
use crate::rivals::ffi::PlainMacswap;
use crate::slices::{Contender, Effort, Pairs, Slice, pair, timed};

/// Number of packets in the loop.
pub const FRAMES: u32 = 512;
/// Size of a frame in bytes, as configured by default.
const FRAME_SIZE: usize = 2048;
/// Headroom in bytes, as configured by default.
const HEADROOM: usize = 192;
/// Number of packets between two reads of the clock.
const CHUNK: u64 = 1 << 16;

/// Creates a frame of `length` bytes without check sequence: addresses, the experimental ethertype
/// 0x88b5, zeros.
#[must_use]
pub fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(length, 0);
    frame
}

/// Swaps the Ethernet addresses of a packet, exactly as `apps/macswap` does.
pub fn macswap(packet: &mut Packet) -> Verdict {
    let Some(ethernet) = packet.header::<Ethernet>() else {
        return Verdict::Drop; // runt
    };
    std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
    Verdict::Reflect
}

/// Lane with one memory port that always has packets.
pub struct MemoryLane<A> {
    lane: Lane<A>,
    counters: Counters,
    burst: usize,
}

impl<A: App> MemoryLane<A> {
    /// Creates the lane with frames of `length` bytes.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(app: A, burst: usize, length: usize) -> Result<Self> {
        let frames = FRAMES as usize;
        let memory = SharedMemory::create("bench-memory", frames * FRAME_SIZE)?;
        let mut pool = Pool::new(memory, FRAME_SIZE, HEADROOM)?;
        let queue = Memory::filled(PortId(0), &mut pool, frames, &frame(length))?;
        let counters = Counters::create(1, 1)?;
        let ports = vec![Port {
            queues: vec![Box::new(queue)],
            kernel: None,
            filter: None,
            counters: counters.port(0, 0),
        }];
        let idle = Idle::Busy;
        let parts = LaneConfig::new(pool, ports, counters.lane(0));
        let parts = LaneConfig { burst, kernel_budget: 64, idle, ..parts };
        Ok(Self { lane: Lane::new(app, parts), counters, burst })
    }

    /// Runs turns until about `packets` more packets were sent back. Returns the exact number.
    pub fn turns(&mut self, packets: u64) -> u64 {
        let sent = || self.counters.port_total(0, PortCounter::SentPackets);
        let before = sent();
        for _ in 0..packets.div_ceil(self.burst as u64) {
            self.lane.turn();
        }
        sent() - before
    }
}

impl<A: App> Contender for MemoryLane<A> {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        timed(length, || Ok(self.turns(CHUNK)))
    }
}

struct Plain {
    rival: PlainMacswap,
    burst: u32,
}

impl Contender for Plain {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        let turns = CHUNK / u64::from(self.burst);
        timed(length, || Ok(self.rival.run(turns, self.burst)))
    }
}

/// Measures one pair at each burst size for frames of `length` bytes, `effort.pairs` times. Both
/// contenders get fresh memory for each pair, so that no result depends on page placement.
///
/// # Errors
/// Returns an error if there is not enough memory.
pub fn compare(
    effort: Effort,
    bursts: &[usize],
    length: usize,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Pairs>> {
    let mut results = vec![Pairs::default(); bursts.len()];
    for number in 0..effort.pairs {
        progress(number);
        for (pairs, &burst) in results.iter_mut().zip(bursts) {
            let mut ours = MemoryLane::new(macswap, burst, length)?;
            let offset = fastlane_core::METADATA_LENGTH + HEADROOM;
            let rival = PlainMacswap::new(FRAMES, FRAME_SIZE, offset, &frame(length))?;
            let mut rival = Plain { rival, burst: burst as u32 };
            let warm_up = effort.slice / 20;
            ours.run(warm_up)?;
            rival.run(warm_up)?;
            pair(pairs, effort.slice, &mut ours, &mut rival)?;
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_swap_the_same_packets() {
        let mut addresses = Vec::new();
        let app = |packet: &mut Packet| {
            let verdict = macswap(packet);
            addresses.push(packet.bytes()[..12].to_vec());
            verdict
        };
        let mut ours = MemoryLane::new(app, 32, 60).unwrap();
        assert_eq!(ours.turns(2 * u64::from(FRAMES)), 2 * u64::from(FRAMES));
        drop(ours);
        let (first, second) = addresses.split_at(FRAMES as usize);
        assert!(first.iter().all(|bytes| bytes[..] == [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]));
        assert!(second.iter().all(|bytes| bytes[..] == [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]));

        let mut rival = PlainMacswap::new(FRAMES, FRAME_SIZE, 0, &frame(60)).unwrap();
        assert_eq!(rival.run(10, 32), 320);
        let mut runts = PlainMacswap::new(4, FRAME_SIZE, 0, &frame(14)[..13]).unwrap();
        assert_eq!(runts.run(10, 32), 0);
    }
}
