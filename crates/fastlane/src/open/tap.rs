//! TAP devices: as a port, and as the kernel peer of a port.

use fastlane_kernel::tap::{self, Tap, TapSettings};

use super::port_tap::PortTap;
use super::{Hardware, OpenContext};
use crate::Error;
use crate::agent::AgentClient;
use crate::agent::records::TapRequest;
use crate::config::plan::{PortPlan, TapPlan, tap_plan};
use crate::config::raw;

/// Opens a TAP device as a port.
pub(super) fn open(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    tap: &raw::Tap,
) -> Result<(), Error> {
    let path = format!("ports.{}.driver.tap", port.name);
    let tap = tap_plan(&path, tap.clone())?;
    let queues = port.lanes.len();
    let Tap { name, queues, .. } =
        create_or_adopt(context, port, &tap, Hardware::default(), queues)?;
    for (lane, queue) in port.lanes.iter().zip(queues) {
        context.add(*lane, port, Box::new(queue.with_port(port.id)));
    }
    context.facts[usize::from(port.id.0)].interface = Some(name);
    Ok(())
}

/// Creates a TAP device for a port, or takes over the inherited one.
pub(super) fn create_or_adopt(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    tap: &TapPlan,
    hardware: Hardware,
    queues: usize,
) -> Result<Tap, Error> {
    let number = usize::from(port.id.0);
    let tap = match &mut context.inherited {
        Some(inherited) => {
            inherited.tap(number, queues).map_err(|reason| Error::port(&port.name, reason))?
        }
        None => match &context.devices.agent {
            Some(agent) => create_by_agent(agent, port, tap, hardware, queues)?,
            None => create(port, tap, hardware, queues)?,
        },
    };
    context.handover.add_tap(number, &tap.queues);
    let watched = context.devices.watch_tap(number, &tap.queues);
    watched.map_err(|reason| Error::port(&port.name, reason))?;
    let agent = context.devices.agent.clone();
    context.devices.taps.push(PortTap::new(tap.switch(), agent));
    Ok(tap)
}

/// Lets the agent create the TAP device, which must be one of its pool.
fn create_by_agent(
    agent: &AgentClient,
    port: &PortPlan,
    tap: &TapPlan,
    hardware: Hardware,
    queues: usize,
) -> Result<Tap, Error> {
    let refuse = |reason: String| Error::port(&port.name, reason);
    let name = tap.name.clone().ok_or_else(|| {
        refuse("the agent creates TAP devices of its pool only; write the `name` of one".to_owned())
    })?;
    let request = TapRequest {
        name,
        mac: tap.mac.map(|mac| mac.0).or(hardware.mac),
        mtu: tap.mtu.or(hardware.mtu),
        queues: u32::try_from(queues).unwrap_or(u32::MAX),
        addresses: tap.addresses.clone(),
    };
    let files = agent.tap(request).map_err(refuse)?;
    tap::adopt(files).map_err(|error| Error::port(&port.name, error))
}

fn create(port: &PortPlan, tap: &TapPlan, hardware: Hardware, queues: usize) -> Result<Tap, Error> {
    let settings = TapSettings {
        name: tap.name.clone(),
        mac: tap.mac.map(|mac| mac.0).or(hardware.mac),
        mtu: tap.mtu.or(hardware.mtu),
        queues,
        up: true,
        quiet: false,
        addresses: tap.addresses.clone(),
    };
    tap::open(settings).map_err(|error| Error::port(&port.name, error))
}
