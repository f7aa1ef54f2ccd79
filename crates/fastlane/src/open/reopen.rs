//! Opening of ports while the lanes run: again, because their interface or device was removed, or
//! on another driver.

use std::os::fd::{AsFd, OwnedFd};

use fastlane_kernel::Interface;
use fastlane_kernel::reentry::Method;
use fastlane_steer::Rules;

use super::link_state::{Link, OfInterface};
use super::port_device::PortDevice;
use super::port_reentry::PortReentry;
use super::reopened::{LaneMemory, Reopened, ReopenedDevice};
use super::{Devices, af_packet, af_xdp, dpdk, memif};
use crate::Error;
use crate::config::plan::{CLOSED_DRIVERS, Plan, PortPlan};
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
    let reopened = open_device(plan, port, devices, memory)?;
    if let (Some(reentry), Some(interface)) = (devices.reentry(number), &reopened.interface) {
        let redirected = reentry.redirect_to(interface);
        redirected.map_err(|error| Error::port(&port.name, error))?;
    }
    read_losses(devices, number, &reopened);
    Ok(reopened)
}

/// Opens a port, with the rules that are in force, while its present device goes on.
///
/// # Errors
/// Returns the first obstacle; what was opened is closed. The call can be repeated.
pub(crate) fn open_beside(
    plan: &Plan,
    port: &PortPlan,
    devices: &mut Devices,
    memory: &LaneMemory<'_>,
) -> Result<Reopened, Error> {
    let opened = open_device(plan, port, devices, memory)?;
    read_losses(devices, usize::from(port.id.0), &opened);
    Ok(opened)
}

/// Reads the losses below the queues of a port from now on. A reader may have a duplicate of a
/// socket, so there is none for queues that are dropped again.
fn read_losses(devices: &mut Devices, port: usize, opened: &Reopened) {
    let readers = opened.queues.iter().filter_map(|(_, queue)| queue.loss_reader());
    readers.for_each(|reader| devices.add_losses(port, reader));
}

fn open_device(
    plan: &Plan,
    port: &PortPlan,
    devices: &Devices,
    memory: &LaneMemory<'_>,
) -> Result<Reopened, Error> {
    let number = usize::from(port.id.0);
    let rules = devices.rules_in_force(number).unwrap_or(&port.rules);
    let opened = match &port.driver {
        Driver::AfXdp(xdp) => af_xdp::reopen(plan, port, xdp, rules, memory)?,
        Driver::AfPacket(packet) => {
            af_packet::reopen(plan, port, packet, rules, memory.agent.as_ref())?
        }
        Driver::Dpdk(raw) => dpdk::reopen(port, raw, rules, devices.dpdk.as_ref())?,
        Driver::Memif(raw) => memif::reopen(port, raw)?,
        Driver::Tap(_)
        | Driver::Udp(_)
        | Driver::Pcap(_)
        | Driver::Memory(_)
        | Driver::Ring(_)
        | Driver::Vlan(_) => {
            return Err(Error::port(&port.name, CLOSED_DRIVERS));
        }
    };
    // The lanes run: what they touch for the first time must not make them wait.
    lane_memory::prepare(plan)?;
    Ok(opened)
}

impl Devices {
    /// Takes the device of a reopened port, and claims frames for its queues, which the lanes have.
    /// Rules that were replaced since it was opened come into force first.
    ///
    /// # Errors
    /// Returns the kernel's refusal; the frames of a queue stay in Linux, or the rules are not
    /// those in force. The port has the device nevertheless.
    pub(crate) fn start_port(&mut self, port: usize, device: ReopenedDevice) -> Result<(), String> {
        let in_force = self.rules_in_force(port).cloned();
        let changed = |opened: &Rules| in_force.filter(|rules| rules != opened);
        match device {
            ReopenedDevice::AfPacket { mut device, rules } => {
                let replaced = changed(&rules).map(|rules| device.replace_rules(&rules));
                self.af_packet.push((port, *device));
                replaced.transpose().map_err(|error| error.to_string())?;
                self.enter_linux(port);
            }
            ReopenedDevice::Dpdk(link) => {
                let mine = self.links.iter_mut().filter(|it| it.number() == port);
                mine.for_each(|it| it.set_device(Box::new(link.clone())));
                self.dpdk_links.push((port, link));
            }
            ReopenedDevice::Memif(link) => {
                if let Some(mine) = self.links.iter_mut().find(|it| it.number() == port) {
                    mine.set_device(Box::new(link));
                }
            }
            ReopenedDevice::AfXdp { mut device, rules, sockets } => {
                let replaced = changed(&rules).map_or(Ok(()), |rules| device.replace_rules(&rules));
                let claims = replaced.and_then(|()| {
                    let mut sockets = sockets.iter();
                    sockets.try_for_each(|(queue, socket)| device.claim_for(*queue, socket.as_fd()))
                });
                self.af_xdp.push((port, device));
                claims.map_err(|error| error.to_string())?;
                self.enter_linux(port);
            }
        }
        Ok(())
    }

    /// Gives a port another device, whose queues the lanes have. What its present device has
    /// received stays in the rings of its queues; it leaves until it is
    /// [closed](Self::close_leaving).
    ///
    /// # Errors
    /// Returns the kernel's refusal; the present device goes on then.
    pub(crate) fn exchange_device(
        &mut self,
        port: &PortPlan,
        device: ReopenedDevice,
    ) -> Result<(), String> {
        let number = usize::from(port.id.0);
        self.check_rules(port)?; // they may have changed since it was opened
        let past = self.take_device(number);
        if !self.links.iter().any(|link| link.number() == number) {
            self.links.push(Link::new(port, Box::new(OfInterface), Vec::new()));
        }
        if port.driver.is_shared() {
            let mine = self.links.iter_mut().filter(|link| link.number() == number);
            mine.for_each(|link| link.set_device(Box::new(OfInterface)));
        }
        // Frames are claimed by one of the two at any time: XDP comes before AF_PACKET.
        if let Err(reason) = self.start_port(number, device) {
            self.close_port(number);
            self.restore_device(number, past);
            return Err(reason);
        }
        if !port.driver.is_shared() {
            self.leave_linux(number);
        }
        self.release_and_leave(port, past);
        Ok(())
    }

    /// Takes the device of a port from it, which claims nothing more, until it is
    /// [closed](Self::close_leaving).
    pub(crate) fn release_device(&mut self, port: &PortPlan) {
        let number = usize::from(port.id.0);
        self.leave_linux(number);
        let device = self.take_device(number);
        self.release_and_leave(port, device);
    }

    fn release_and_leave(&mut self, port: &PortPlan, mut device: PortDevice) {
        if let Err(reason) = device.release() {
            tracing::warn!("port `{}`: its former device claims frames: {reason}", port.name);
        }
        self.add_leaving(usize::from(port.id.0), device);
    }

    /// Lets the path of a port into Linux enter by the interface of its device, in the manner of
    /// its driver.
    ///
    /// # Errors
    /// The kernel's refusal; packets labelled `Kernel` may be lost then.
    pub(crate) fn enter_by(
        &mut self,
        port: &PortPlan,
        interface: &Interface,
    ) -> Result<(), String> {
        let Some(reentry) = self.reentry(usize::from(port.id.0)) else { return Ok(()) };
        reentry.enter(interface, way_of(&port.driver))
    }

    /// Lets the path of a port into Linux enter beside its driver and the next one, if each would
    /// see the packets of the other way again, until it [enters](Self::enter_by) in the manner of
    /// the next one.
    ///
    /// # Errors
    /// The kernel's refusal; packets labelled `Kernel` may arrive again and again during the
    /// change.
    pub(crate) fn enter_beside_both(&mut self, next: &PortPlan) -> Result<(), String> {
        match self.reentry(usize::from(next.id.0)) {
            Some(reentry) if next.driver.is_shared() => {
                reentry.enter_beside_both(way_of(&next.driver))
            }
            _ => Ok(()),
        }
    }

    /// Lets the path of a port into Linux enter as before, as the change did not come about.
    ///
    /// # Errors
    /// The kernel's refusal; packets labelled `Kernel` may be lost then.
    pub(crate) fn enter_as_before(&mut self, port: usize) -> Result<(), String> {
        self.reentry(port).map_or(Ok(()), PortReentry::enter_as_before)
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

/// Returns the way into Linux whose packets a driver does not receive again.
fn way_of(driver: &Driver) -> Method {
    match driver {
        Driver::AfPacket(_) => af_packet::REENTRY,
        _ => af_xdp::REENTRY,
    }
}

#[cfg(test)]
mod tests {
    use fastlane_steer::Rule;
    use fastlane_table::counters::{Counters, DownReason};
    use serde_json::{Value, json};

    use super::super::fake_steering::FakeSteering;
    use super::*;

    /// Returns the settings of a port on a driver.
    fn port_on(driver: &Value) -> PortPlan {
        let raw = json!({"ports": {"wire": {"driver": driver}}});
        let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
        plan.ports.into_iter().next().unwrap()
    }

    /// Returns a port on memif, and its device, which has no peer.
    fn memif_port() -> (PortPlan, ReopenedDevice) {
        let port = port_on(&json!({"memif": {"socket": "@fastlane-nobody", "role": "client"}}));
        let Driver::Memif(raw) = &port.driver else { panic!("memif") };
        let device = memif::reopen(&port, raw).unwrap().device;
        (port, device)
    }

    fn af_packet_port() -> PortPlan {
        port_on(&json!({"af-packet": {"interface": "lo"}}))
    }

    fn rules(port: u16) -> Rules {
        Rules::new(vec![Rule { udp_port: Some(port.into()), ..Rule::default() }]).unwrap()
    }

    #[test]
    fn rules_that_were_replaced_while_a_port_was_opened_are_in_force_once_it_starts() {
        let steering = FakeSteering::default();
        for open in [FakeSteering::af_xdp, FakeSteering::af_packet] {
            let mut devices = Devices::default();
            devices.shared_rules.push((0, rules(1)));
            let opened = open(&steering, &rules(1));
            devices.replace_rules(0, &rules(2)).unwrap();
            assert_eq!(steering.take_rules(), [], "the port has no device");
            devices.start_port(0, opened).unwrap();
            assert_eq!(steering.take_rules(), [rules(2)]);
            devices.close_port(0);
            // A replacement takes milliseconds, so there is none without a reason.
            devices.start_port(0, open(&steering, &rules(2))).unwrap();
            assert_eq!(steering.take_rules(), []);
        }
    }

    #[test]
    fn a_list_is_accepted_only_where_it_is_matched() {
        let (steering, none) = (FakeSteering::default(), Rules::default());
        let (memif, device) = memif_port();
        let mut devices = Devices::default();
        devices.shared_rules.push((0, none.clone()));
        devices.exchange_device(&memif, device).unwrap();
        let error = devices.replace_rules(0, &rules(1)).unwrap_err();
        assert!(error.contains("its lanes do not match a `steer` list"), "{error}");
        // In Linux again, which matches the list.
        devices.exchange_device(&af_packet_port(), steering.af_packet(&none)).unwrap();
        devices.replace_rules(0, &rules(1)).unwrap();
        assert_eq!(steering.take_rules(), [rules(1)]);
        // The list may have come since the switch began.
        let error = devices.exchange_device(&memif, memif_port().1).unwrap_err();
        assert!(error.contains("its `steer` list is matched in Linux"), "{error}");
        devices.replace_rules(0, &none).unwrap();
        assert_eq!(steering.take_rules(), std::slice::from_ref(&none), "the device has stayed");
        // While a PCI device changes its driver, nobody matches a list.
        devices.release_device(&af_packet_port());
        devices.replace_rules(0, &rules(1)).unwrap_err();
        devices.start_port(0, steering.af_packet(&none)).unwrap();
        devices.replace_rules(0, &rules(1)).unwrap();
    }

    #[test]
    fn a_port_that_was_started_without_a_list_has_one_where_linux_matches_it() {
        let (steering, none) = (FakeSteering::default(), Rules::default());
        let mut devices = Devices::default();
        let error = devices.replace_rules(0, &rules(1)).unwrap_err();
        assert!(error.contains("it was started without `steer`"), "{error}");
        devices.exchange_device(&af_packet_port(), steering.af_packet(&none)).unwrap();
        devices.replace_rules(0, &rules(1)).unwrap();
        assert_eq!(steering.take_rules(), [rules(1)]);
        assert_eq!(devices.rules_in_force(0), Some(&rules(1)), "also after a removal");
    }

    #[test]
    fn a_list_of_the_lanes_is_replaced_with_the_one_in_linux() {
        let steering = FakeSteering::default();
        let mut devices = Devices::default();
        devices.add_lane_rules(0, &rules(1));
        let mut lane = devices.filter(0).unwrap();
        devices.exchange_device(&af_packet_port(), steering.af_packet(&rules(1))).unwrap();
        devices.replace_rules(0, &Rules::default()).unwrap();
        lane.begin_burst();
        assert!(lane.claims(&[0; 60]), "an empty list claims every frame");
        let (memif, device) = memif_port();
        devices.exchange_device(&memif, device).unwrap();
        devices.replace_rules(0, &rules(2)).unwrap();
        assert_eq!(steering.take_rules(), [Rules::default()]);
        assert_eq!(devices.rules_in_force(0), Some(&rules(2)));
    }

    #[test]
    fn an_interface_that_is_down_stays_so_when_its_port_is_published() {
        let counters = Counters::create(1, 1).unwrap();
        let mut devices = Devices::default();
        let device = FakeSteering::default().af_packet(&Rules::default());
        devices.exchange_device(&af_packet_port(), device).unwrap();
        counters.set_down_reason(0, Some(DownReason::LinkDown));
        devices.publish(&counters);
        assert_eq!(counters.down_reason(0), Some(DownReason::LinkDown));
    }
}
