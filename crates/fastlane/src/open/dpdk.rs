//! Ports over DPDK.

use std::sync::Arc;

use fastlane_dpdk::{
    Device, DeviceSettings, Environment, EnvironmentSettings, Error as DpdkError, HugePages,
    LaneMemory, Link,
};

use super::link_state::LinkState;
use super::{Hardware, OpenContext};
use crate::Error;
use crate::config::plan::{Plan, PortPlan};
use crate::config::raw::{self, Driver};

/// DPDK's environment after its start, and its memory for each lane.
pub(super) struct Dpdk {
    environment: Arc<Environment>,
    memories: Vec<Option<LaneMemory>>,
}

/// Opens the port; the first one starts DPDK's environment.
pub(super) fn open(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    raw: &raw::Dpdk,
) -> Result<(), Error> {
    let refuse = |error: DpdkError| Error::port(&port.name, error);
    let mut dpdk = match context.dpdk.take() {
        Some(dpdk) => dpdk,
        None => Dpdk::start(context.plan).map_err(refuse)?,
    };
    let memories = port.lanes.iter().map(|lane| memory(context, &mut dpdk, *lane));
    let memories: Vec<_> = memories.collect::<Result<_, _>>().map_err(refuse)?;
    let device = settings(raw);
    let mut device =
        Device::open(&dpdk.environment, &device, &memories, &port.rules).map_err(refuse)?;
    for (number, lane) in port.lanes.iter().enumerate() {
        if let Some(queue) = device.queue(port.id, number).map_err(refuse)? {
            context.add(*lane, port, Box::new(queue));
        }
    }
    if port.lanes.len() > 1 && !device.has_symmetric_rss() {
        tracing::warn!(
            "port `{}`: {} does not report how it spreads packets over its queues; the two \
                 directions of a flow may arrive in different lanes",
            port.name,
            device.driver()
        );
    }
    let number = usize::from(port.id.0);
    context.facts[number].mode = mode(&device, port, &dpdk.environment);
    context.hardware[number] = Hardware { mac: Some(device.mac()), mtu: Some(device.mtu() as u32) };
    context.states[number] = Some(Box::new(device.link()));
    context.dpdk = Some(dpdk);
    Ok(())
}

/// Returns DPDK's memory for a lane, created for the lane's first port.
fn memory(
    context: &mut OpenContext<'_>,
    dpdk: &mut Dpdk,
    lane: usize,
) -> Result<LaneMemory, DpdkError> {
    if let Some(memory) = &dpdk.memories[lane] {
        return Ok(memory.clone());
    }
    let pool = &mut context.lanes[lane].pool;
    let (frames, room) = (context.plan.frames, room(context.plan));
    let memory = LaneMemory::new(&dpdk.environment, pool, frames, room, ANY_NODE)?;
    dpdk.memories[lane] = Some(memory.clone());
    Ok(memory)
}

/// Returns the data room of DPDK's frames: the size of a pool frame, and at least DPDK's own
/// default (`RTE_MBUF_DEFAULT_DATAROOM`), on which some devices rely.
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
}

impl LinkState for Link {
    fn state(&self) -> (bool, String) {
        (self.is_up(), String::new())
    }
}

fn settings(raw: &raw::Dpdk) -> DeviceSettings {
    let name = raw.device.as_ref().or(raw.vdev.as_ref());
    let mut settings = DeviceSettings::new(name.cloned().unwrap_or_default());
    settings.promiscuous = raw.promiscuous.unwrap_or(settings.promiscuous);
    settings.receive_descriptors = raw.receive_ring.unwrap_or(settings.receive_descriptors);
    settings.transmit_descriptors = raw.transmit_ring.unwrap_or(settings.transmit_descriptors);
    settings
}

/// Returns driver, version, steering and offloads, for the description of the port.
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
