//! Paths of packets labelled `Kernel` into Linux: re-entry on the interface, and kernel peers
//! (TAP).

use fastlane_core::{KernelPath, Queue};
use fastlane_kernel::Interface;
use fastlane_kernel::reentry::Method;
use fastlane_kernel::tap::{Tap, TapQueue};

use super::kernel_peer::KernelPeer;
use super::port_reentry::PortReentry;
use super::{Hardware, OpenContext, tap};
use crate::Error;
use crate::config::plan::{KernelPlan, Plan, PortPlan, TapPlan};

/// Opens the path into Linux of a port with `queues` queues on an interface that Linux keeps:
/// re-entry by this method, or a kernel peer if the interface is in another network namespace.
pub(super) fn open_shared(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    interface: &Interface,
    method: Method,
    queues: u32,
) -> Result<(), Error> {
    if context.devices.interfaces.agent().is_some() {
        open_peer_elsewhere(context, port, interface, queues)
    } else if matches!(port.kernel, KernelPlan::ReEnter { .. }) {
        reenter(context, port, interface, method)
    } else {
        Ok(())
    }
}

/// Lets packets re-enter Linux as if they had just arrived on the interface.
fn reenter(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    interface: &Interface,
    method: Method,
) -> Result<(), Error> {
    let agent = context.devices.agent.as_ref();
    let (reentry, queues) = PortReentry::open(interface, method, port.lanes.len(), agent)
        .map_err(|reason| Error::port(&port.name, reason))?;
    let number = usize::from(port.id.0);
    let watched = context.devices.watch_tap(number, &queues);
    watched.map_err(|reason| Error::port(&port.name, reason))?;
    context.devices.reentries.push((number, reentry));
    for (lane, queue) in port.lanes.iter().zip(queues) {
        let queue: Box<dyn Queue> = Box::new(queue.with_port(port.id));
        context.lanes[*lane].kernel[number] = Some(KernelPath { queue, receives: false });
    }
    context.facts[number].kernel = Some("re-enter".to_owned());
    Ok(())
}

/// Opens the kernel peer of a port that Linux does not have, if the plan has one. The TAP gets the
/// device's MAC address and MTU unless the configuration sets others.
pub(super) fn open_tap(context: &mut OpenContext<'_>, port: &PortPlan) -> Result<(), Error> {
    let KernelPlan::Tap(tap) = &port.kernel else { return Ok(()) };
    if port.driver.is_shared() {
        return Ok(()); // opened with the port
    }
    // Only lanes with a queue of the port, because Linux spreads its flows over all TAP queues.
    let has_port = |lane: &usize| context.has_queue(*lane, port);
    let lanes = port.lanes.iter().copied().filter(has_port).collect();
    open_peer(context, port, tap, lanes).map(drop)
}

/// Opens the kernel peer of a port whose interface, with `queues` queues, is in another network
/// namespace. The TAP takes the place of the interface, and follows it.
fn open_peer_elsewhere(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    interface: &Interface,
    queues: u32,
) -> Result<(), Error> {
    let Some(agent) = context.devices.interfaces.agent().cloned() else { return Ok(()) };
    let tap = match &port.kernel {
        KernelPlan::None | KernelPlan::OfCarrier => return Ok(()),
        KernelPlan::Tap(tap) => tap.clone(),
        KernelPlan::ReEnter { is_default } => {
            if *is_default && !agent.rights().taps.contains(&interface.name) {
                return Ok(());
            }
            let name = Some(interface.name.clone());
            TapPlan { name, mac: None, mtu: None, addresses: vec![] }
        }
    };
    let number = usize::from(port.id.0);
    let mac = (interface.mac != [0; 6]).then_some(interface.mac);
    context.hardware[number] = Hardware { mac, mtu: Some(interface.mtu) };
    let mut lanes: Vec<usize> = (0..queues as usize).map(|it| Plan::lane_of(port, it)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let name = open_peer(context, port, &tap, lanes)?;
    let Some(carrier) = context.peers[number].take() else { return Ok(()) };
    carrier.set(interface.carrier).map_err(|error| Error::port(&port.name, error))?;
    let is_fixed = tap.mac.is_some() || tap.mtu.is_some();
    let peer = KernelPeer { tap: name, carrier, agent, is_fixed };
    context.devices.peers.push((number, peer));
    Ok(())
}

/// Opens a TAP with a queue for each of these lanes. Returns its name.
fn open_peer(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    tap: &TapPlan,
    lanes: Vec<usize>,
) -> Result<String, Error> {
    let number = usize::from(port.id.0);
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
    Ok(name)
}
