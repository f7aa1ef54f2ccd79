//! Reopening of ports whose interface or device was removed, while the lanes run.

use std::os::fd::{AsFd, OwnedFd};

use super::reopened::{LaneMemory, Reopened, ReopenedDevice};
use super::{Devices, af_packet, af_xdp, dpdk};
use crate::Error;
use crate::config::plan::{Plan, PortPlan};
use crate::config::raw::Driver;
use crate::lane_memory;

/// Opens a port again, with the rules that are in force.
///
/// # Errors
/// Returns the first obstacle; what was opened is closed. The call can be repeated.
pub(crate) fn reopen(
    plan: &Plan,
    port: &PortPlan,
    devices: &mut Devices,
    memory: &LaneMemory<'_>,
) -> Result<Reopened, Error> {
    let number = usize::from(port.id.0);
    let rules = devices.rules_in_force(number).unwrap_or(&port.rules);
    let reopened = match &port.driver {
        Driver::AfXdp(xdp) => af_xdp::reopen(plan, port, xdp, rules, memory)?,
        Driver::AfPacket(packet) => {
            af_packet::reopen(plan, port, packet, rules, memory.agent.as_ref())?
        }
        Driver::Dpdk(raw) => dpdk::reopen(port, raw, rules, devices.dpdk.as_ref())?,
        _ => return Err(Error::port(&port.name, "its driver cannot be reopened; restart")),
    };
    // The lanes run: what they touch for the first time must not make them wait.
    lane_memory::prepare(plan)?;
    if let (Some(reentry), Some(interface)) = (devices.reentry(number), &reopened.interface) {
        let redirected = reentry.redirect_to(interface);
        redirected.map_err(|error| Error::port(&port.name, error))?;
    }
    let readers = reopened.queues.iter().filter_map(|(_, queue)| queue.loss_reader());
    readers.for_each(|reader| devices.add_losses(number, reader));
    Ok(reopened)
}

impl Devices {
    /// Takes the device of a reopened port, and claims frames for its queues, which the lanes have.
    ///
    /// # Errors
    /// Returns the kernel's refusal; the frames of that queue stay in Linux.
    pub(crate) fn start_port(&mut self, port: usize, device: ReopenedDevice) -> Result<(), String> {
        match device {
            ReopenedDevice::AfPacket(device) => self.af_packet.push((port, *device)),
            ReopenedDevice::Dpdk(link) => {
                let mine = self.links.iter_mut().filter(|it| it.number() == port);
                mine.for_each(|it| it.set_device(Box::new(link.clone())));
                self.dpdk_links.push((port, link));
            }
            ReopenedDevice::AfXdp { mut device, sockets } => {
                let claims = sockets.iter().try_for_each(|(queue, socket)| {
                    device.claim_for(*queue, socket.as_fd()).map_err(|error| error.to_string())
                });
                self.af_xdp.push((port, device));
                claims?;
            }
        }
        Ok(())
    }

    /// Returns the descriptor that becomes readable when a DPDK device was removed, or `None`
    /// without DPDK.
    pub(crate) fn removal_events(&self) -> Option<OwnedFd> {
        let events = self.dpdk.as_ref()?.environment().removal_events()?;
        events.try_clone_to_owned().ok()
    }

    /// Returns true if the DPDK device of a port was removed. Does not wait for the device.
    pub(crate) fn is_removed(&self, port: usize) -> bool {
        self.dpdk_links.iter().any(|(number, link)| *number == port && link.is_removed())
    }
}
