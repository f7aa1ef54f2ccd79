//! Ports over AF_PACKET, on an interface that Linux keeps.

use fastlane_kernel::af_packet;
use fastlane_kernel::reentry::Method;

use super::{OpenContext, kernel_path, preflight};
use crate::Error;
use crate::config::plan::{KernelPlan, PortPlan};
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
    let refuse = |error: fastlane_kernel::Error| Error::port(&port.name, error);
    let interface = preflight::of_af_packet(context.plan, port, packet)?;
    preflight::warn_if_down(port, &interface);
    let settings = af_packet::AfPacketSettings {
        interface: interface.clone(),
        queues: port.lanes.len(),
        ring_frames: packet.ring,
        max_length: preflight::room(context.plan) as u32,
        promiscuous: packet.promiscuous,
        mark: REENTRY_MARK,
    };
    let mut device = af_packet::Device::open(&settings, &port.rules).map_err(refuse)?;
    for (number, lane) in port.lanes.iter().enumerate() {
        if let Some(queue) = device.queue(port.id, number) {
            context.add(*lane, port, Box::new(queue));
        }
    }
    if matches!(port.kernel, KernelPlan::ReEnter) {
        kernel_path::reenter(context, port, &interface, Method::Redirect { mark: REENTRY_MARK })?;
    }
    let number = usize::from(port.id.0);
    context.facts[number].mode = "ring in, sendmmsg out".to_owned();
    context.facts[number].interface = Some(interface.name);
    context.linux_interfaces[number] = Some(interface.index);
    context.devices.af_packet.push((number, device));
    Ok(())
}
