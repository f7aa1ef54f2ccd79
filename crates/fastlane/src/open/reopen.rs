//! Reopening of ports on interfaces that Linux keeps, while the lanes run.

use std::os::fd::AsFd;

use super::reopened::{LaneMemory, Reopened, ReopenedDevice};
use super::{Devices, af_packet, af_xdp};
use crate::Error;
use crate::config::plan::{Plan, PortPlan};
use crate::config::raw::Driver;

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
    let rules = devices.shared_rules.iter().find(|(it, _)| *it == number);
    let rules = rules.map_or(&port.rules, |(_, rules)| rules);
    let reopened = match &port.driver {
        Driver::AfXdp(xdp) => af_xdp::reopen(plan, port, xdp, rules, memory)?,
        Driver::AfPacket(packet) => af_packet::reopen(plan, port, packet, rules)?,
        _ => return Err(Error::port(&port.name, "its driver cannot be reopened; restart")),
    };
    if let Some(reentry) = devices.reentry(number) {
        let redirected = reentry.redirect_to(&reopened.interface);
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
            ReopenedDevice::AfPacket(device) => self.af_packet.push((port, device)),
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
}
