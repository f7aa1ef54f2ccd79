//! Lane that echoes frames on one interface, on AF_XDP or AF_PACKET.

use std::os::fd::BorrowedFd;

use fastlane_af_xdp as af_xdp;
use fastlane_core::{Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Verdict};
use fastlane_kernel::{Interface, af_packet};
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;

use crate::Result;
use crate::device::memory_lane::macswap;

/// Number of slots in each ring.
pub const RING: u32 = 2048;
/// Number of frames in the pool.
pub const FRAMES: u32 = 8192;
/// Size of a frame in bytes.
const FRAME_SIZE: usize = 2048;
/// Maximum number of packets in a burst.
const BURST: usize = 32;

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
    AfPacket { _device: Box<af_packet::Device> },
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
            Ok((Box::new(queue), Device::AfPacket { _device: Box::new(device) }))
        }
    }
}
