//! Ports of DPDK (ethdev): the part of a device that its queues share.

use std::fmt;
use std::sync::Arc;

use crate::plugin::{DeviceConfig, DeviceLosses};
use crate::{Environment, Error, LaneMemory};

/// The part of a device that its queues share.
pub(crate) struct EthPort {
    pub(crate) environment: Arc<Environment>,
    /// Port number of DPDK.
    pub(crate) number: u16,
    pub(crate) name: String,
    /// Memory of each queue; the device holds frames of it.
    pub(crate) memories: Vec<LaneMemory>,
    /// Frames reserved in each memory.
    reserved: usize,
    /// Number of running queues.
    pub(crate) queues: u16,
    /// Losses of the device before it was opened here.
    pub(crate) before: DeviceLosses,
}

impl EthPort {
    /// Creates the value for a probed device without queues.
    pub(crate) fn new(environment: &Arc<Environment>, number: u16, name: &str) -> Self {
        Self {
            environment: Arc::clone(environment),
            number,
            name: name.to_owned(),
            memories: Vec::new(),
            reserved: 0,
            queues: 0,
            before: DeviceLosses::default(),
        }
    }

    /// Reserves frames for all queues.
    pub(crate) fn reserve(
        &mut self,
        memories: &[LaneMemory],
        config: &DeviceConfig,
    ) -> Result<(), Error> {
        self.reserved =
            usize::from(config.receive_descriptors) + usize::from(config.transmit_descriptors);
        for memory in memories {
            memory.reserve(&self.name, self.reserved)?;
            self.memories.push(memory.clone());
        }
        Ok(())
    }

    /// Returns true if the link is up now. May query the device.
    pub(crate) fn link_up(&self) -> bool {
        self.environment.with(|plugin| plugin.link_up(self.number))
    }

    /// Sets the link of the device up or down; returns false if the device cannot.
    pub(crate) fn set_link(&self, up: bool) -> bool {
        self.environment.with(|plugin| plugin.set_link(self.number, up))
    }

    /// Returns the losses of the device since it was opened. May take a message to the device and a
    /// millisecond asleep, as on virtual functions of iavf and idpf. Does not lock.
    /// Returns `None` if the device does not answer.
    pub(crate) fn losses(&self) -> Option<DeviceLosses> {
        let now = self.environment.plugin().losses(self.number)?;
        let since = |now: u64, before: u64| now.saturating_sub(before);
        Some(DeviceLosses {
            missed: since(now.missed, self.before.missed),
            receive_errors: since(now.receive_errors, self.before.receive_errors),
            transmit_errors: since(now.transmit_errors, self.before.transmit_errors),
            no_frames: since(now.no_frames, self.before.no_frames),
        })
    }
}

impl Drop for EthPort {
    fn drop(&mut self) {
        self.environment.with(|plugin| plugin.remove_device(self.number, self.queues));
        for memory in &self.memories {
            memory.unreserve(self.reserved);
        }
    }
}

impl fmt::Debug for EthPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EthPort")
            .field("number", &self.number)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
