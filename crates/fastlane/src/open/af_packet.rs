//! Ports over AF_PACKET, on an interface that Linux keeps.

use std::sync::Arc;

use fastlane_core::Queue;
use fastlane_kernel::reentry::Method;
use fastlane_kernel::{Interface, af_packet};
use fastlane_steer::Rules;

use super::reopened::{Reopened, ReopenedDevice};
use super::{OpenContext, kernel_path, preflight};
use crate::Error;
use crate::agent::records::{Attach, REENTRY_MARK, SharedDriver};
use crate::agent::{AgentClient, Interfaces, RemoteSteering};
use crate::config::plan::{Plan, PortPlan};
use crate::config::raw;

/// Method of re-entry: the port lets frames with the mark pass.
pub(super) const REENTRY: Method = Method::Redirect { mark: REENTRY_MARK };

/// Mode of the port, for its description.
const MODE: &str = "ring in, sendmmsg out";

/// Opens the rings and attaches the steering program.
pub(super) fn open(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    packet: &raw::AfPacket,
) -> Result<(), Error> {
    let interfaces = &context.devices.interfaces;
    let interface = preflight::of_af_packet(context.plan, port, packet, interfaces)?;
    preflight::warn_if_down(port, &interface);
    let agent = context.devices.agent.clone();
    let rules = context.plan.applied_rules(port).map_err(|error| Error::port(&port.name, error))?;
    let port = &PortPlan { rules: rules.clone(), ..port.clone() };
    let mut device = open_device(context.plan, port, packet, &interface, agent.as_ref())?;
    for (number, lane) in port.lanes.iter().enumerate() {
        if let Some(queue) = device.queue(port.id, number) {
            context.add(*lane, port, Box::new(queue));
        }
    }
    let queues = u32::try_from(port.lanes.len()).unwrap_or(u32::MAX);
    kernel_path::open_shared(context, port, &interface, REENTRY, queues)?;
    let number = usize::from(port.id.0);
    context.facts[number].mode = MODE.to_owned();
    context.shares(port, interface, rules);
    context.devices.af_packet.push((number, device));
    Ok(())
}

/// Opens the port again on an interface that has taken the place of a removed one. The queues
/// receive at once.
pub(super) fn reopen(
    plan: &Plan,
    port: &PortPlan,
    packet: &raw::AfPacket,
    rules: &Rules,
    agent: Option<&Arc<AgentClient>>,
) -> Result<Reopened, Error> {
    let interface = preflight::of_af_packet(plan, port, packet, &Interfaces::of(agent))?;
    let port = &PortPlan { rules: rules.clone(), ..port.clone() };
    let mut device = open_device(plan, port, packet, &interface, agent)?;
    let queues = port.lanes.iter().enumerate().filter_map(|(number, lane)| {
        let queue: Box<dyn Queue> = Box::new(device.queue(port.id, number)?);
        Some((*lane, queue))
    });
    let queues = queues.collect();
    let interface = Some(interface);
    let device = ReopenedDevice::AfPacket { device: Box::new(device), rules: rules.clone() };
    Ok(Reopened { interface, mode: MODE.to_owned(), queues, device })
}

/// Opens the sockets, by the agent if there is one.
fn open_device(
    plan: &Plan,
    port: &PortPlan,
    packet: &raw::AfPacket,
    interface: &Interface,
    agent: Option<&Arc<AgentClient>>,
) -> Result<af_packet::Device, Error> {
    let settings =
        packet.socket_settings(interface, port.lanes.len(), preflight::room(plan) as u32);
    let Some(agent) = agent else {
        return af_packet::Device::open(&settings, &port.rules)
            .map_err(|error| Error::port(&port.name, error));
    };
    // The device of a process before this one, whose connection this one has taken over.
    if let Some(device) = agent.token(interface.index) {
        agent.detach(&device);
    }
    let attach = Attach {
        driver: SharedDriver::AfPacket(packet.clone()),
        steer: port.rules.as_slice().iter().map(Into::into).collect(),
        max_length: settings.max_length,
        sockets: u32::try_from(settings.queues).unwrap_or(u32::MAX),
    };
    let attached = agent.attach(attach);
    let (attached, sockets) = attached.map_err(|reason| Error::port(&port.name, reason))?;
    let steering = Box::new(RemoteSteering::new(Arc::clone(agent), attached.device));
    let device = af_packet::Device::with_sockets(&settings, sockets, steering);
    device.map_err(|error| Error::port(&port.name, error))
}

impl raw::AfPacket {
    /// Returns the settings of the sockets on an interface.
    #[must_use]
    pub fn socket_settings(
        &self,
        interface: &Interface,
        queues: usize,
        max_length: u32,
    ) -> af_packet::AfPacketSettings {
        af_packet::AfPacketSettings {
            interface: interface.clone(),
            queues,
            ring_frames: self.ring,
            max_length,
            promiscuous: self.promiscuous,
            mark: REENTRY_MARK,
        }
    }
}
