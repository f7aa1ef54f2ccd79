//! Paths of packets labelled `Kernel` into Linux: re-entry on the interface, and kernel peers
//! (TAP).

use fastlane_core::{KernelPath, Queue};
use fastlane_kernel::Interface;
use fastlane_kernel::reentry::Method;
use fastlane_kernel::tap::{Tap, TapQueue};

use super::port_reentry::PortReentry;
use super::{OpenContext, tap};
use crate::Error;
use crate::config::plan::{KernelPlan, PortPlan};

/// Lets packets re-enter Linux as if they had just arrived on the interface.
pub(super) fn reenter(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    interface: &Interface,
    method: Method,
) -> Result<(), Error> {
    let agent = context.devices.agent.as_ref();
    let (reentry, queues) = PortReentry::open(interface, method, port.lanes.len(), agent)
        .map_err(|reason| Error::port(&port.name, reason))?;
    let number = usize::from(port.id.0);
    context.devices.reentries.push((number, reentry));
    for (lane, queue) in port.lanes.iter().zip(queues) {
        let queue: Box<dyn Queue> = Box::new(queue.with_port(port.id));
        context.lanes[*lane].kernel[number] = Some(KernelPath { queue, receives: false });
    }
    context.facts[number].kernel = Some("re-enter".to_owned());
    Ok(())
}

/// Opens the kernel peer of a port if the plan has one. The TAP gets the device's MAC address and
/// MTU unless the configuration sets others.
pub(super) fn open_tap(context: &mut OpenContext<'_>, port: &PortPlan) -> Result<(), Error> {
    let KernelPlan::Tap(tap) = &port.kernel else { return Ok(()) };
    let number = usize::from(port.id.0);
    // Only lanes with a queue of the port, because Linux spreads its flows over all TAP queues.
    let has_port = |lane: &usize| !context.lanes[*lane].queues[number].is_empty();
    let lanes: Vec<usize> = port.lanes.iter().copied().filter(has_port).collect();
    let Tap { name, queues, .. } =
        tap::create_or_adopt(context, port, tap, context.hardware[number], lanes.len())?;
    let carrier = queues.first().map(TapQueue::carrier).transpose();
    context.peers[number] = carrier.map_err(|error| Error::port(&port.name, error))?;
    for (lane, queue) in lanes.into_iter().zip(queues) {
        let queue: Box<dyn Queue> = Box::new(queue.with_port(port.id));
        context.lanes[lane].kernel[number] = Some(KernelPath { queue, receives: true });
    }
    let linux_interface =
        Interface::query(&name).map_err(|error| Error::port(&port.name, error))?;
    context.linux_interfaces[number] = Some(linux_interface.index);
    context.facts[number].kernel = Some(format!("TAP {name}"));
    Ok(())
}
