//! Ports over DPDK.

use std::sync::Arc;

use fastlane_core::Queue;
use fastlane_dpdk::{Device, DeviceSettings, Environment, Error as DpdkError, LaneMemory, Link};
use fastlane_steer::Rules;

use super::dpdk_environment::Dpdk;
use super::link_state::LinkState;
use super::reopened::{Reopened, ReopenedDevice};
use super::{Hardware, OpenContext};
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::raw;
use crate::privileges;

/// Queue with the index of its lane.
type LaneQueue = (usize, Box<dyn Queue>);

/// Opens the port; the first one starts DPDK's environment.
pub(super) fn open(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    raw: &raw::Dpdk,
) -> Result<(), Error> {
    let refuse = |error: DpdkError| Error::port(&port.name, error);
    let mut dpdk = match context.dpdk.take() {
        Some(dpdk) => dpdk,
        None => {
            open_nodes(context)?;
            Dpdk::start(context.plan).map_err(refuse)?
        }
    };
    let lanes = &mut context.lanes;
    let device = settings(raw);
    let node = dpdk.environment().node_of(&device.device);
    let memories = port
        .lanes
        .iter()
        .map(|lane| dpdk.memory(context.plan, *lane, node, &mut lanes[*lane].pool));
    let memories: Vec<_> = memories.collect::<Result<_, _>>().map_err(refuse)?;
    let (device, queues) = open_device(dpdk.environment(), port, &device, &memories, &port.rules)?;
    for (lane, queue) in queues {
        context.add(lane, port, queue);
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
    context.facts[number].mode = mode(&device, port, dpdk.environment());
    context.hardware[number] = Hardware { mac: Some(device.mac()), mtu: Some(device.mtu() as u32) };
    context.states[number] = Some(Box::new(device.link()));
    context.devices.dpdk_links.push((number, device.link()));
    context.dpdk = Some(dpdk);
    Ok(())
}

/// Has the agent open the device nodes that this process may not open. DPDK's environment needs all
/// of them at its start.
fn open_nodes(context: &OpenContext<'_>) -> Result<(), Error> {
    let Some(agent) = &context.devices.agent else { return Ok(()) };
    for port in &context.plan.ports {
        if let Some(address) = privileges::vfio_of_agent(context.plan, port) {
            agent.open_vfio(address).map_err(|reason| Error::port(&port.name, reason))?;
        }
    }
    Ok(())
}

/// Opens the port again, on a device that has returned, with the lanes' memory.
pub(super) fn reopen(
    port: &PortPlan,
    raw: &raw::Dpdk,
    rules: &Rules,
    dpdk: Option<&Dpdk>,
) -> Result<Reopened, Error> {
    let dpdk = dpdk.ok_or_else(|| Error::port(&port.name, "DPDK does not run; restart"))?;
    let memories = dpdk.memories_of(&port.lanes).map_err(|error| Error::port(&port.name, error))?;
    let environment = dpdk.environment();
    let (device, queues) = open_device(environment, port, &settings(raw), &memories, rules)?;
    let mode = mode(&device, port, environment);
    Ok(Reopened { interface: None, mode, queues, device: ReopenedDevice::Dpdk(device.link()) })
}

/// Opens a device with a queue for each lane of the port. Returns the queues, each with the index
/// of its lane.
fn open_device(
    environment: &Arc<Environment>,
    port: &PortPlan,
    settings: &DeviceSettings,
    memories: &[LaneMemory],
    rules: &Rules,
) -> Result<(Device, Vec<LaneQueue>), Error> {
    let refuse = |error: DpdkError| Error::port(&port.name, error);
    let mut device = Device::open(environment, settings, memories, rules).map_err(refuse)?;
    let mut queues = Vec::with_capacity(port.lanes.len());
    for (number, lane) in port.lanes.iter().enumerate() {
        if let Some(queue) = device.queue(port.id, number).map_err(refuse)? {
            queues.push((*lane, Box::new(queue) as Box<dyn Queue>));
        }
    }
    Ok((device, queues))
}

impl LinkState for Link {
    fn state(&self) -> (bool, String) {
        (self.is_up(), String::new())
    }

    fn end_arrivals(&self) {
        Link::end_arrivals(self);
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
