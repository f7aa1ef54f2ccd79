//! Ports over DPDK.

use fastlane_dpdk::{Device, DeviceSettings, Environment, Error as DpdkError, Link};

use super::dpdk_environment::Dpdk;
use super::link_state::LinkState;
use super::{Hardware, OpenContext};
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::raw;

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
    let lanes = &mut context.lanes;
    let device = settings(raw);
    let node = dpdk.environment().node_of(&device.device);
    let memories = port
        .lanes
        .iter()
        .map(|lane| dpdk.memory(context.plan, *lane, node, &mut lanes[*lane].pool));
    let memories: Vec<_> = memories.collect::<Result<_, _>>().map_err(refuse)?;
    let mut device =
        Device::open(dpdk.environment(), &device, &memories, &port.rules).map_err(refuse)?;
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
    context.facts[number].mode = mode(&device, port, dpdk.environment());
    context.hardware[number] = Hardware { mac: Some(device.mac()), mtu: Some(device.mtu() as u32) };
    context.states[number] = Some(Box::new(device.link()));
    context.dpdk = Some(dpdk);
    Ok(())
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
