//! DPDK's environment, which all DPDK ports share.

use std::sync::Arc;

use fastlane_core::Pool;
use fastlane_dpdk::{Environment, EnvironmentSettings, Error as DpdkError, HugePages, LaneMemory};

use crate::config::plan::Plan;
use crate::config::raw::{self, Driver};

/// DPDK's environment after its start, and its memory for each lane.
pub(super) struct Dpdk {
    environment: Arc<Environment>,
    memories: Vec<Option<LaneMemory>>,
}

impl Dpdk {
    /// Starts the environment with what all DPDK ports of the plan need.
    pub(super) fn start(plan: &Plan) -> Result<Self, DpdkError> {
        let ports = plan.ports.iter().filter_map(|port| match &port.driver {
            Driver::Dpdk(dpdk) => Some((port, dpdk)),
            _ => None,
        });
        let (mut pci, mut users) = (Vec::new(), vec![false; plan.lanes.len()]);
        for (port, dpdk) in ports {
            pci.extend(dpdk.device.clone());
            port.lanes.iter().for_each(|lane| users[*lane] = true);
        }
        let lanes = users.iter().filter(|uses| **uses).count();
        let frames = LaneMemory::size_mib(plan.frames, room(plan)) * lanes;
        let raw = &plan.dpdk;
        let environment = Environment::start(&EnvironmentSettings {
            lane_cpus: plan.lanes.iter().filter_map(|lane| lane.cpu).collect(),
            pci,
            huge_pages: match raw.huge_pages {
                raw::HugePages::Auto => HugePages::Auto,
                raw::HugePages::Required => HugePages::Required,
                raw::HugePages::None => HugePages::None,
            },
            memory: raw.memory_mib.unwrap_or(frames),
            arguments: raw.eal_arguments.clone(),
        })?;
        if let Some(warning) = environment.warning() {
            tracing::warn!("DPDK: {warning}");
        }
        Ok(Self { environment, memories: vec![None; plan.lanes.len()] })
    }

    /// Returns the environment.
    pub(super) fn environment(&self) -> &Arc<Environment> {
        &self.environment
    }

    /// Returns the memories of lanes, in their order.
    ///
    /// # Errors
    /// Returns the reason if one has opened no DPDK port at its start: queue by queue, a device has
    /// the memory of the lane.
    pub(super) fn memories_of(&self, lanes: &[usize]) -> Result<Vec<LaneMemory>, String> {
        let memory = |lane: &usize| {
            self.memories[*lane].clone().ok_or_else(|| {
                format!(
                    "lane {lane} has no memory of DPDK, because it has started without a port on \
                     it; start the application with this port on dpdk, or give the port the lanes \
                     of one that is"
                )
            })
        };
        lanes.iter().map(memory).collect()
    }

    /// Returns DPDK's memory for a lane and its pool, created for the lane's first port on the NUMA
    /// node of its device.
    pub(super) fn memory(
        &mut self,
        plan: &Plan,
        lane: usize,
        node: i32,
        pool: &mut Pool,
    ) -> Result<LaneMemory, DpdkError> {
        if let Some(memory) = &self.memories[lane] {
            return Ok(memory.clone());
        }
        let memory = LaneMemory::new(&self.environment, pool, plan.frames, room(plan), node)?;
        self.memories[lane] = Some(memory.clone());
        Ok(memory)
    }
}

/// Returns the data room of DPDK's frames: the size of a pool frame, and at least DPDK's own
/// default (`RTE_MBUF_DEFAULT_DATAROOM`), on which some devices rely.
fn room(plan: &Plan) -> usize {
    plan.frame_size.max(2048)
}
