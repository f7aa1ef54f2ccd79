//! Ports over DPDK.

use std::sync::Arc;

use fastlane_dpdk::{
    Device, DeviceSettings, Environment, EnvironmentSettings, Error as DpdkError, HugePages,
    LaneMemory, Link,
};

use super::links::State;
use super::{Hardware, Opening};
use crate::Error;
use crate::config::plan::{Plan, PortPlan};
use crate::config::written::{self, Driver};

/// DPDK once it has started, and the frames that it has made for each lane.
pub(super) struct Dpdk {
    environment: Arc<Environment>,
    memories: Vec<Option<LaneMemory>>,
}

impl Opening<'_> {
    pub(super) fn open_dpdk(
        &mut self,
        port: &PortPlan,
        written: &written::Dpdk,
    ) -> Result<(), Error> {
        let refuse = |error: DpdkError| Error::port(&port.name, error);
        let mut dpdk = match self.dpdk.take() {
            Some(dpdk) => dpdk,
            None => Dpdk::start(self.plan).map_err(refuse)?,
        };
        let memories = port.lanes.iter().map(|lane| self.memory(&mut dpdk, *lane));
        let memories: Vec<_> = memories.collect::<Result<_, _>>().map_err(refuse)?;
        let device = settings(written);
        let mut device =
            Device::open(&dpdk.environment, &device, &memories, &port.rules).map_err(refuse)?;
        for (number, lane) in port.lanes.iter().enumerate() {
            if let Some(queue) = device.queue(port.id, number).map_err(refuse)? {
                self.add(*lane, port, Box::new(queue));
            }
        }
        if port.lanes.len() > 1 && !device.has_symmetric_rss() {
            tracing::warn!(
                "port `{}`: {} does not say how it spreads packets over its queues: the two \
                 directions of a flow may meet in different lanes",
                port.name,
                device.driver()
            );
        }
        let number = usize::from(port.id.0);
        self.facts[number].mode = mode(&device, port, &dpdk.environment);
        self.hardware[number] =
            Hardware { mac: Some(device.mac()), mtu: Some(device.mtu() as u32) };
        self.states[number] = Some(Box::new(device.link()));
        self.dpdk = Some(dpdk);
        Ok(())
    }

    /// The frames of a lane that DPDK can use, made for its first port.
    fn memory(&mut self, dpdk: &mut Dpdk, lane: usize) -> Result<LaneMemory, DpdkError> {
        if let Some(memory) = &dpdk.memories[lane] {
            return Ok(memory.clone());
        }
        let pool = &mut self.lanes[lane].pool;
        let (frames, room) = (self.plan.frames, room(self.plan));
        let memory = LaneMemory::new(&dpdk.environment, pool, frames, room, ANY_NODE)?;
        dpdk.memories[lane] = Some(memory.clone());
        Ok(memory)
    }
}

/// The longest packet of a frame of DPDK's: as much as a frame of the pool has in all, and never
/// less than DPDK's own default, which some of its devices rely on.
fn room(plan: &Plan) -> usize {
    plan.frame_size.max(2048)
}

/// No particular NUMA node.
const ANY_NODE: i32 = -1;

impl Dpdk {
    fn start(plan: &Plan) -> Result<Self, DpdkError> {
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
        let written = &plan.dpdk;
        let environment = Environment::start(&EnvironmentSettings {
            lane_cpus: plan.lanes.iter().filter_map(|lane| lane.cpu).collect(),
            pci,
            huge_pages: match written.huge_pages {
                written::HugePages::Auto => HugePages::Auto,
                written::HugePages::Required => HugePages::Required,
                written::HugePages::None => HugePages::None,
            },
            memory: written.memory_mib.unwrap_or(frames),
            arguments: written.eal_arguments.clone(),
        })?;
        if let Some(warning) = environment.warning() {
            tracing::warn!("DPDK: {warning}");
        }
        Ok(Self { environment, memories: vec![None; plan.lanes.len()] })
    }
}

impl State for Link {
    fn look(&self) -> (bool, String) {
        (self.is_up(), String::new())
    }
}

fn settings(written: &written::Dpdk) -> DeviceSettings {
    let name = written.device.as_ref().or(written.vdev.as_ref());
    let mut settings = DeviceSettings::new(name.cloned().unwrap_or_default());
    settings.promiscuous = written.promiscuous.unwrap_or(settings.promiscuous);
    settings.receive_descriptors = written.receive_ring.unwrap_or(settings.receive_descriptors);
    settings.transmit_descriptors = written.transmit_ring.unwrap_or(settings.transmit_descriptors);
    settings
}

/// What was chosen, in words.
fn mode(device: &Device, port: &PortPlan, environment: &Environment) -> String {
    let mut mode = format!("{} ({})", device.driver(), environment.version());
    if !port.rules.is_empty() {
        mode += &format!(", steering by {}", device.steering());
    }
    if device.offloads_checksums() {
        mode += ", checksums by the device";
    }
    mode
}
