//! Ports that were opened while the lanes run, before they are started.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fastlane_core::{PoolLayout, Queue};
use fastlane_kernel::{Interface, af_packet};
use fastlane_steer::Rules;

use super::link_state::LinkState;
use crate::agent::AgentClient;

/// Memory of the lanes, which AF_XDP sockets use.
pub(crate) struct LaneMemory<'a> {
    /// Pool of each lane.
    pub(crate) layouts: &'a [PoolLayout],
    /// Number of AF_XDP queues that each lane has of other ports.
    pub(crate) other_queues: Vec<usize>,
    /// Connection to the agent, if it opens the ports.
    pub(crate) agent: Option<Arc<AgentClient>>,
}

/// Port that was opened while the lanes run. It receives once the lanes have its queues and its
/// device is [started](super::Devices::start_port).
pub(crate) struct Reopened {
    /// Interface in Linux; `None` for a device that Linux does not have.
    pub(crate) interface: Option<Interface>,
    /// Mode selected by the driver, for the description.
    pub(crate) mode: String,
    /// Queues, each with the index of its lane.
    pub(crate) queues: Vec<(usize, Box<dyn Queue>)>,
    pub(crate) device: ReopenedDevice,
}

/// Device with its steering program.
pub(crate) enum ReopenedDevice {
    AfXdp {
        device: fastlane_af_xdp::Device,
        /// Rules that it was opened with.
        rules: Rules,
        /// Socket of each queue of the device.
        sockets: Vec<(u32, OwnedFd)>,
    },
    AfPacket {
        device: Box<af_packet::Device>,
        /// Rules that it was opened with.
        rules: Rules,
    },
    Dpdk(fastlane_dpdk::Link),
    Memif(fastlane_memif::Link),
}

impl ReopenedDevice {
    /// Returns the number of queues, if there may be fewer than the port has lanes.
    pub(crate) fn queues(&self) -> Option<usize> {
        match self {
            Self::AfXdp { sockets, .. } => Some(sockets.len()),
            Self::AfPacket { .. } | Self::Dpdk(_) | Self::Memif(_) => None,
        }
    }

    /// Leaves all frames to Linux from now on.
    ///
    /// # Errors
    /// The reason why the steering program goes on claiming some.
    pub(crate) fn release(&mut self) -> Result<(), String> {
        match self {
            Self::AfXdp { device, .. } => device.release().map_err(|error| error.to_string()),
            Self::AfPacket { device, .. } => device.release().map_err(|error| error.to_string()),
            Self::Dpdk(_) | Self::Memif(_) => Ok(()),
        }
    }
}

impl Reopened {
    /// Returns true unless a peer must connect first.
    pub(crate) fn is_connected(&self) -> bool {
        match &self.device {
            ReopenedDevice::Memif(link) => LinkState::state(link).0,
            _ => true,
        }
    }
}
