//! Ports over AF_PACKET, on an interface that Linux keeps.

use fastlane_core::Queue;
use fastlane_kernel::reentry::Method;
use fastlane_kernel::{Interface, af_packet};
use fastlane_steer::Rules;

use super::reopened::{Reopened, ReopenedDevice};
use super::{OpenContext, kernel_path, preflight};
use crate::Error;
use crate::agent::Interfaces;
use crate::config::plan::{KernelPlan, Plan, PortPlan};
use crate::config::raw;

/// Socket mark of frames that re-enter Linux, so that the port does not receive them again.
/// Steering clears it before Linux's own rules see the frame.
const REENTRY_MARK: u32 = 0x_fa57_1a4e;

/// Opens the rings and attaches the steering program.
pub(super) fn open(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    packet: &raw::AfPacket,
) -> Result<(), Error> {
    let interfaces = &context.devices.interfaces;
    let interface = preflight::of_af_packet(context.plan, port, packet, interfaces)?;
    preflight::warn_if_down(port, &interface);
    let mut device = open_device(context.plan, port, packet, &interface, &port.rules)?;
    for (number, lane) in port.lanes.iter().enumerate() {
        if let Some(queue) = device.queue(port.id, number) {
            context.add(*lane, port, Box::new(queue));
        }
    }
    if matches!(port.kernel, KernelPlan::ReEnter { .. }) {
        kernel_path::reenter(context, port, &interface, Method::Redirect { mark: REENTRY_MARK })?;
    }
    let number = usize::from(port.id.0);
    context.facts[number].mode = "ring in, sendmmsg out".to_owned();
    context.shares(port, interface);
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
) -> Result<Reopened, Error> {
    let interface = preflight::of_af_packet(plan, port, packet, &Interfaces::Own)?;
    let mut device = open_device(plan, port, packet, &interface, rules)?;
    let queues = port.lanes.iter().enumerate().filter_map(|(number, lane)| {
        let queue: Box<dyn Queue> = Box::new(device.queue(port.id, number)?);
        Some((*lane, queue))
    });
    let queues = queues.collect();
    let interface = Some(interface);
    Ok(Reopened { interface, queues, device: ReopenedDevice::AfPacket(Box::new(device)) })
}

fn open_device(
    plan: &Plan,
    port: &PortPlan,
    packet: &raw::AfPacket,
    interface: &Interface,
    rules: &Rules,
) -> Result<af_packet::Device, Error> {
    let settings = af_packet::AfPacketSettings {
        interface: interface.clone(),
        queues: port.lanes.len(),
        ring_frames: packet.ring,
        max_length: preflight::room(plan) as u32,
        promiscuous: packet.promiscuous,
        mark: REENTRY_MARK,
    };
    af_packet::Device::open(&settings, rules).map_err(|error| Error::port(&port.name, error))
}
