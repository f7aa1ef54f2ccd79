//! Echoes frames on a veth pair and measures the CPU time per frame of the echoing thread.
//!
//! A batch is queued while the echo does not run, then the echo runs until the whole batch is back.
//! One thread does both in turn, so neither the scheduler nor another CPU affects the result. The
//! CPU time of a batch includes the kernel's transmit work in this thread. Its receive work was
//! done before.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use fastlane_af_xdp as af_xdp;
use fastlane_core::{Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Verdict};
use fastlane_kernel::{Interface, af_packet};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::memory_lane::macswap;
use crate::device::veth_pair::Veth;
use crate::rivals::ffi::XskEcho;
use crate::slices::{Contender, Effort, Pairs, Slice, pair, thread_cpu};

/// Number of slots in each ring, for all contenders.
pub const RING: u32 = 2048;
/// Number of frames in the pool, for all contenders.
const FRAMES: u32 = 8192;
/// Size of a frame in bytes, for all contenders.
const FRAME_SIZE: usize = 2048;
/// Maximum number of packets in a burst, for all contenders.
const BURST: usize = 32;
/// Number of empty turns after which missing frames count as lost.
const PATIENCE: u64 = 20_000;

/// Echo of frames on one interface.
pub trait Echo {
    /// Runs until `frames` frames are echoed or no more arrive. Returns the number of echoed
    /// frames.
    fn run(&mut self, frames: u64) -> u64;
}

impl Echo for XskEcho {
    fn run(&mut self, frames: u64) -> u64 {
        self.run(frames, PATIENCE)
    }
}

/// Mechanism of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// AF_XDP in native copy mode, the fastest mode on veth.
    AfXdp,
    /// AF_PACKET with rings.
    AfPacket,
}

impl std::fmt::Display for Mechanism {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::AfXdp => "AF_XDP",
            Self::AfPacket => "AF_PACKET",
        })
    }
}

/// Device whose steering keeps frames coming; dropped after the queues.
enum Device {
    AfXdp { _device: af_xdp::Device },
    AfPacket { _device: af_packet::Device },
}

/// Lane that swaps addresses on one interface.
pub struct EchoLane {
    lane: Lane<fn(&mut Packet) -> Verdict>,
    counters: Counters,
    _device: Device,
}

impl EchoLane {
    /// Opens the interface with the default settings of a configuration.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a request or AF_XDP does not get native copy mode.
    pub fn open(mechanism: Mechanism, interface: &str) -> Result<Self> {
        let memory = SharedMemory::create("bench-echo", FRAMES as usize * FRAME_SIZE)?;
        let mut pool = Pool::new(memory, FRAME_SIZE, 192)?;
        let (queue, device) = open(mechanism, Interface::query(interface)?, &mut pool)?;
        let counters = Counters::create(1, 1)?;
        let ports = vec![Port {
            queues: vec![queue],
            kernel: None,
            filter: None,
            counters: counters.port(0, 0),
        }];
        let lane = Lane::new(
            macswap as fn(&mut Packet) -> Verdict,
            LaneConfig {
                burst: BURST,
                kernel_budget: 64,
                idle: Idle::Busy,
                ..LaneConfig::new(pool, ports, counters.lane(0))
            },
        );
        Ok(Self { lane, counters, _device: device })
    }

    /// Returns the lane.
    pub fn lane(&mut self) -> &mut Lane<fn(&mut Packet) -> Verdict> {
        &mut self.lane
    }

    /// Returns the descriptors that become readable when frames arrive.
    #[must_use]
    pub fn interrupts(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.lane.interrupts()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Echo for EchoLane {
    fn run(&mut self, frames: u64) -> u64 {
        let port = self.counters.port(0, 0);
        let before = port.load(PortCounter::SentPackets);
        let mut idle = 0;
        loop {
            let work = self.lane.turn();
            let echoed = port.load(PortCounter::SentPackets) - before;
            idle = if work == 0 { idle + 1 } else { 0 };
            if idle > 0 && (echoed >= frames || idle > PATIENCE) {
                return echoed;
            }
        }
    }
}

impl Drop for EchoLane {
    fn drop(&mut self) {
        self.lane.close();
    }
}

fn open(
    mechanism: Mechanism,
    interface: Interface,
    pool: &mut Pool,
) -> Result<(Box<dyn Queue>, Device)> {
    let rules = Rules::default(); // no rules: all frames go to the fast path
    match mechanism {
        Mechanism::AfXdp => {
            let settings = af_xdp::Settings {
                mode: af_xdp::Mode::NativeCopy,
                receive_ring: RING,
                transmit_ring: RING,
                virtual_device: true,
                ..af_xdp::Settings::new(&interface.name, interface.index)
            };
            let longest = af_xdp::longest_frame(FRAME_SIZE);
            let mut device = af_xdp::Device::open(settings, &rules, longest)?;
            let request =
                af_xdp::OpenRequest { device: &mut device, port: PortId(0), queues: vec![0] };
            let queue = af_xdp::open_lane(pool, &mut [request])?.pop().ok_or("no queue")?;
            Ok((Box::new(queue.handle), Device::AfXdp { _device: device }))
        }
        Mechanism::AfPacket => {
            let max_length = pool.room() as u32;
            let settings = af_packet::AfPacketSettings {
                ring_frames: RING,
                max_length,
                ..af_packet::AfPacketSettings::new(interface)
            };
            let mut device = af_packet::Device::open(&settings, &rules)?;
            let queue = device.queue(PortId(0), 0).ok_or("no queue")?;
            Ok((Box::new(queue), Device::AfPacket { _device: device }))
        }
    }
}

/// Echo with its own veth pair.
struct Station {
    echo: Box<dyn Echo>, // dropped before the pair
    veth: Veth,
}

impl Station {
    fn batch(&mut self) -> Result<Slice> {
        let arrived = self.veth.queue()?;
        let (before, start) = (self.veth.returned()?, thread_cpu());
        let echoed = self.echo.run(arrived);
        let cpu = thread_cpu() - start;
        let returned = self.veth.returned()? - before;
        if echoed != arrived || returned != arrived {
            let lost = format!("{arrived} frames came, {echoed} were echoed, {returned} came back");
            return Err(format!("{}: {lost}", self.veth.name).into());
        }
        Ok(Slice { cpu, packets: echoed })
    }
}

impl Contender for Station {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        let end = Instant::now() + length;
        let mut sum = Slice::default();
        while Instant::now() < end {
            let batch = self.batch()?;
            sum.cpu += batch.cpu;
            sum.packets += batch.packets;
        }
        Ok(sum)
    }
}

/// Pair of contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// AF_XDP of Fastlane against the hand-written loop.
    AgainstRings,
    /// AF_XDP of Fastlane against its AF_PACKET.
    AgainstAfPacket,
    /// Hand-written loop against itself on two veth pairs. The ratio shows the error of the method
    /// and must be 1.
    Control,
}

/// Compares two echoes for frames of `length` bytes. The caller runs it
/// [`in_namespace`](crate::device::veth_pair::in_namespace).
///
/// # Errors
/// Returns an error if the kernel refuses a request or a frame is lost.
pub fn compare(
    which: Match,
    length: usize,
    effort: Effort,
    mut progress: impl FnMut(usize),
) -> Result<Pairs> {
    pin(1);
    let mut pairs = Pairs::default();
    for number in 0..effort.pairs {
        progress(number);
        // Fresh interfaces in alternating order, so that no result depends on the order of creation
        // or on page placement.
        let swapped = number % 4 >= 2;
        let (mut ours, mut rival) = if swapped {
            let rival = station(which, false, 1, length)?;
            (station(which, true, 2, length)?, rival)
        } else {
            (station(which, true, 1, length)?, station(which, false, 2, length)?)
        };
        ours.batch()?;
        rival.batch()?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
    }
    Ok(pairs)
}

fn station(which: Match, ours: bool, number: usize, length: usize) -> Result<Station> {
    let veth = Veth::new(number, length, false)?;
    let echo: Box<dyn Echo> = match (which, ours) {
        (Match::AgainstRings | Match::AgainstAfPacket, true) => {
            Box::new(EchoLane::open(Mechanism::AfXdp, &veth.name)?)
        }
        (Match::AgainstAfPacket, false) => {
            Box::new(EchoLane::open(Mechanism::AfPacket, &veth.name)?)
        }
        (Match::AgainstRings, false) | (Match::Control, _) => {
            Box::new(XskEcho::open(Interface::query(&veth.name)?.index, RING, FRAMES)?)
        }
    };
    Ok(Station { echo, veth })
}
