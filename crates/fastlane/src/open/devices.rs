//! State of ports that belongs to no lane: steering programs, rules and links.

use std::sync::Arc;

use fastlane_af_xdp as af_xdp;
use fastlane_core::{Filter, LossReader, PortId, Statistics};
use fastlane_kernel::Interface;
use fastlane_kernel::af_packet;
use fastlane_kernel::tap::{TapQueue, TapWatch};
use fastlane_steer::{Counts, Rules};
use fastlane_table::counters::{Counters, DownReason, PortCounter};

use super::dpdk_environment::Dpdk;
use super::kernel_peer::KernelPeer;
use super::lane_filter::LaneRules;
use super::link_state::Link;
use super::port_device::{PortDevice, add_counts};
use super::port_reentry::PortReentry;
use super::port_tap::PortTap;
use crate::agent::{AgentClient, Interfaces};
use crate::config::plan::{PortPlan, unmatched_rules};
use crate::config::raw::Driver;

/// Steering programs, lane rules and links of all ports. Dropping it detaches the programs from
/// their interfaces.
#[derive(Default)]
pub(crate) struct Devices {
    /// Connection to the agent, if it opens the ports.
    pub(crate) agent: Option<Arc<AgentClient>>,
    /// Network namespace of the interfaces that ports share with Linux.
    pub(crate) interfaces: Interfaces,
    /// Kernel peers of ports whose interfaces are in another network namespace.
    pub(super) peers: Vec<(usize, KernelPeer)>,
    pub(super) af_xdp: Vec<(usize, af_xdp::Device)>,
    pub(super) af_packet: Vec<(usize, af_packet::Device)>,
    pub(super) taps: Vec<PortTap>,
    /// Watches on all TAP devices, by port: ports, kernel peers and those of re-entry.
    tap_watches: Vec<(usize, TapWatch)>,
    pub(super) links: Vec<Link>,
    /// DPDK with the memory of the lanes, for ports that are reopened.
    pub(super) dpdk: Option<Dpdk>,
    /// Link of each DPDK port whose device is there.
    pub(super) dpdk_links: Vec<(usize, fastlane_dpdk::Link)>,
    /// Re-entry of ports on interfaces that Linux keeps.
    pub(super) reentries: Vec<(usize, PortReentry)>,
    /// Rules in force on interfaces that Linux keeps, by port.
    pub(super) shared_rules: Vec<(usize, Rules)>,
    /// Ports of `shared_rules` whose present device Linux does not have.
    away: Vec<usize>,
    /// Devices of ports that get another one, until all that they have received was read.
    leaving: Vec<(usize, PortDevice)>,
    /// Steering counters of devices that were closed, by port.
    past_counts: Vec<(usize, Counts)>,
    lane_rules: Vec<(usize, LaneRules)>,
    /// Losses below the queues of each port.
    losses: Vec<PortLosses>,
    /// Each port that is a VLAN, and the port that carries it.
    pub(super) vlans: Vec<(PortId, PortId)>,
    /// True once all frames are Linux's, because the application ends.
    released: bool,
}

/// Losses below the queues of a port.
struct PortLosses {
    port: usize,
    /// Losses of queues that are closed.
    past: Statistics,
    readers: Vec<LossReader>,
}

impl PortLosses {
    fn read(&mut self) -> Statistics {
        for ended in self.readers.extract_if(.., |reader| reader.has_ended()) {
            self.past += ended.read();
        }
        let mut losses = self.past;
        self.readers.iter().for_each(|reader| losses += reader.read());
        losses
    }
}

impl Devices {
    /// Adds the reader of the losses below a queue of a port.
    pub(super) fn add_losses(&mut self, port: usize, reader: LossReader) {
        match self.losses.iter_mut().find(|losses| losses.port == port) {
            Some(losses) => losses.readers.push(reader),
            None => {
                let past = Statistics::default();
                self.losses.push(PortLosses { port, past, readers: vec![reader] });
            }
        }
    }

    /// Adds a port whose rules the lanes match themselves.
    pub(crate) fn add_lane_rules(&mut self, port: usize, rules: &Rules) {
        self.lane_rules.push((port, LaneRules::new(rules)));
    }

    /// Creates the filter of one more lane, if the lanes match the rules of the port themselves.
    pub(super) fn filter(&mut self, port: usize) -> Option<Box<dyn Filter>> {
        let rules = self.lane_rules.iter_mut().find(|(number, _)| *number == port)?;
        rules.1.filter()
    }

    /// Replaces the rules of a port while it runs. Each frame is matched against either the old or
    /// the new list.
    ///
    /// # Errors
    /// The reason, for example that neither Linux nor the lanes would match them. The old rules
    /// stay in force.
    pub(crate) fn replace_rules(&mut self, port: usize, rules: &Rules) -> Result<(), String> {
        if self.released {
            return Err("the application is ending; change the rules after its start".to_owned());
        }
        self.check_matched(port)?;
        if let Some((_, device)) = self.af_xdp.iter_mut().find(|(number, _)| *number == port) {
            device.replace_rules(rules).map_err(|error| error.to_string())?;
        }
        if let Some((_, device)) = self.af_packet.iter_mut().find(|(number, _)| *number == port) {
            device.replace_rules(rules).map_err(|error| error.to_string())?;
        }
        // Also for a port that is being reopened.
        let shared = self.shared_rules.iter_mut().filter(|(number, _)| *number == port);
        shared.for_each(|(_, before)| rules.clone_into(before));
        let of_lanes = self.lane_rules.iter_mut().filter(|(number, _)| *number == port);
        of_lanes.for_each(|(_, lane_rules)| lane_rules.replace(rules));
        Ok(())
    }

    /// Checks that a list of a port would be matched, in Linux or by its lanes.
    fn check_matched(&self, port: usize) -> Result<(), String> {
        let is_shared = self.shared_rules.iter().any(|(number, _)| *number == port);
        let is_away = self.away.contains(&port);
        if self.is_matched_by_lanes(port) || (is_shared && !is_away) {
            return Ok(());
        }
        let reason = if is_away {
            "its lanes do not match a `steer` list; switch it to af-xdp or af-packet, or restart \
             it on its present driver with `steer`"
        } else {
            "it was started without `steer`, so its frames are not matched; restart it with `steer`"
        };
        Err(reason.to_owned())
    }

    fn is_matched_by_lanes(&self, port: usize) -> bool {
        self.lane_rules.iter().any(|(number, _)| *number == port)
    }

    /// Checks that the rules in force are matched for the driver of a port.
    ///
    /// # Errors
    /// Returns an error if its lanes would have to match them, and do not.
    pub(crate) fn check_rules(&self, port: &PortPlan) -> Result<(), String> {
        let number = usize::from(port.id.0);
        let has_rules = self.rules_in_force(number).is_some_and(|rules| !rules.is_empty());
        match has_rules && !port.driver.is_shared() && !self.is_matched_by_lanes(number) {
            true => Err(unmatched_rules(&port.driver)),
            false => Ok(()),
        }
    }

    /// Checks that the lanes of a port can have its queues.
    ///
    /// # Errors
    /// Returns an error if one of them has no memory for its driver.
    pub(crate) fn check_memory(&self, port: &PortPlan) -> Result<(), String> {
        match (&port.driver, &self.dpdk) {
            (Driver::Dpdk(_), Some(dpdk)) => dpdk.memories_of(&port.lanes).map(drop),
            _ => Ok(()),
        }
    }

    /// Records that Linux does not match the rules of a port any more.
    pub(super) fn leave_linux(&mut self, port: usize) {
        let is_shared = self.shared_rules.iter().any(|(number, _)| *number == port);
        if is_shared && !self.away.contains(&port) {
            self.away.push(port);
        }
    }

    /// Records that Linux matches the rules of a port from now on. Where the lanes match the lists
    /// of VLANs, they go on.
    pub(super) fn enter_linux(&mut self, port: usize) {
        self.away.retain(|number| *number != port);
        let is_known = self.shared_rules.iter().any(|(number, _)| *number == port);
        if !is_known && !self.vlans.iter().any(|(_, carrier)| usize::from(carrier.0) == port) {
            let rules = self.rules_in_force(port).cloned().unwrap_or_default();
            self.shared_rules.push((port, rules));
        }
    }

    /// Leaves all frames to Linux from now on, before the lanes stop, and ends what arrives from
    /// Linux by a TAP or a virtual device. Frames in the rings of the queues remain. AF_XDP and TAP
    /// devices that are kept for a successor go on.
    pub(crate) fn release(&mut self, is_kept: bool) {
        self.released = true;
        let xdp = self.af_xdp.iter_mut().filter(|_| !is_kept);
        let xdp = xdp.map(|(_, device)| device.release().map_err(|error| error.to_string()));
        let packet = self.af_packet.iter_mut();
        let packet = packet.map(|(_, device)| device.release().map_err(|error| error.to_string()));
        for error in xdp.chain(packet).filter_map(Result::err) {
            tracing::warn!("steering stays until the ports are closed: {error}");
        }
        for error in self.taps.iter().filter(|_| !is_kept).filter_map(|tap| tap.set_down().err()) {
            tracing::warn!("frames that Linux sends until the ports are closed are lost: {error}");
        }
        self.links.iter().for_each(Link::end_arrivals);
    }

    /// Publishes the counters of steering and the losses below the queues, and updates the carriers
    /// of kernel peers. May wait for devices.
    pub(crate) fn publish(&mut self, counters: &Counters) {
        self.links.iter_mut().for_each(|link| link.update(counters));
        self.lane_rules.iter_mut().for_each(|(_, rules)| rules.sweep());
        let xdp = self.af_xdp.iter().map(|(port, device)| (*port, device.counts().ok()));
        let packet = self.af_packet.iter().map(|(port, device)| (*port, device.counts().ok()));
        for (port, counts) in xdp.chain(packet) {
            self.publish_counts(counters, port, counts);
        }
        for losses in &mut self.losses {
            losses.read().store(&counters.shared_port(losses.port));
        }
        // A VLAN is down as long as the port that carries it is.
        for (vlan, carrier) in &self.vlans {
            let reason = counters.shared_port(usize::from(carrier.0)).load(PortCounter::DownReason);
            counters.set_down_reason(usize::from(vlan.0), DownReason::from_number(reason));
        }
    }

    /// Publishes the counters of a steering program and of those before it.
    fn publish_counts(&self, counters: &Counters, port: usize, counts: Option<Counts>) {
        let Some(counts) = counts else { return };
        let past = self.past_counts.iter().find(|(number, _)| *number == port);
        let mut past = past.map(|(_, counts)| *counts).unwrap_or_default();
        let leaving = self.leaving.iter().filter(|(number, _)| *number == port);
        leaving.filter_map(|(_, it)| it.counts()).for_each(|it| add_counts(&mut past, &it));
        let port = counters.shared_port(port);
        port.store(PortCounter::SteerClaimed, past.claimed + counts.claimed);
        port.store(PortCounter::SteerPassed, past.passed + counts.passed);
        port.store(PortCounter::SteerUncovered, past.uncovered + counts.uncovered);
        port.store(PortCounter::SteerTooLong, past.too_long + counts.too_long);
    }

    /// Leaves the frames of a port to Linux from now on, before its device is closed.
    pub(crate) fn release_port(&mut self, port: usize) -> Result<(), String> {
        if let Some((_, device)) = self.af_xdp.iter_mut().find(|(number, _)| *number == port) {
            return device.release().map_err(|error| error.to_string());
        }
        Ok(())
    }

    /// Returns the rules of a port that are in force, if they can be replaced.
    pub(crate) fn rules_in_force(&self, port: usize) -> Option<&Rules> {
        let shared = self.shared_rules.iter().find(|(number, _)| *number == port);
        let of_lanes = || self.lane_rules.iter().find(|(number, _)| *number == port);
        shared.map(|(_, rules)| rules).or_else(|| of_lanes()?.1.in_force())
    }

    /// Closes the device of a port and detaches its steering program.
    pub(crate) fn close_port(&mut self, port: usize) {
        let device = self.take_device(port);
        self.close_device(port, device);
    }

    /// Lets the device of a port, which [leaves](Self::exchange_device), be closed.
    pub(crate) fn close_leaving(&mut self, port: usize) {
        let leaving: Vec<_> = self.leaving.extract_if(.., |(number, _)| *number == port).collect();
        leaving.into_iter().for_each(|(_, device)| self.close_device(port, device));
    }

    fn close_device(&mut self, port: usize, device: PortDevice) {
        let Some(counts) = device.close() else { return };
        match self.past_counts.iter_mut().find(|(number, _)| *number == port) {
            Some((_, past)) => add_counts(past, &counts),
            None => self.past_counts.push((port, counts)),
        }
    }

    /// Takes the device of a port away, which goes on as it is.
    pub(super) fn take_device(&mut self, port: usize) -> PortDevice {
        let is_of = |number: usize| number == port;
        let xdp = self.af_xdp.extract_if(.., |(number, _)| is_of(*number)).map(|(_, it)| it);
        let packet = self.af_packet.extract_if(.., |(number, _)| is_of(*number)).map(|(_, it)| it);
        let dpdk = self.dpdk_links.extract_if(.., |(number, _)| is_of(*number)).map(|(_, it)| it);
        let links = self.links.iter_mut().filter(|link| is_of(link.number()));
        let link = links.filter_map(Link::remove_device);
        PortDevice {
            xdp: xdp.collect(),
            packet: packet.collect(),
            dpdk: dpdk.collect(),
            link: link.collect(),
        }
    }

    /// Gives a device back that was [taken away](Self::take_device).
    pub(super) fn restore_device(&mut self, port: usize, device: PortDevice) {
        let PortDevice { xdp, packet, dpdk, link } = device;
        self.af_xdp.extend(xdp.into_iter().map(|it| (port, it)));
        self.af_packet.extend(packet.into_iter().map(|it| (port, it)));
        self.dpdk_links.extend(dpdk.into_iter().map(|it| (port, it)));
        let links = self.links.iter_mut().filter(|it| it.number() == port);
        links.zip(link).for_each(|(it, device)| it.set_device(device));
    }

    /// Records a device that leaves: it claims nothing more.
    pub(super) fn add_leaving(&mut self, port: usize, device: PortDevice) {
        self.leaving.push((port, device));
    }

    /// Follows another MTU of a port's interface.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to steer by it.
    pub(crate) fn set_mtu(&mut self, port: usize, mtu: u32) -> Result<(), af_xdp::Error> {
        let device = self.af_xdp.iter_mut().find(|(number, _)| *number == port);
        device.map_or(Ok(()), |(_, device)| device.set_mtu(mtu))
    }

    /// Lets the path of a port into Linux follow its interface: re-entry the Ethernet address, the
    /// kernel peer of an interface in another network namespace also MTU and carrier. `None` is a
    /// removed interface.
    ///
    /// # Errors
    /// The reason of the kernel or the agent.
    pub(crate) fn follow(&mut self, port: usize, now: Option<&Interface>) -> Result<(), String> {
        if let Some((_, peer)) = self.peers.iter().find(|(number, _)| *number == port) {
            return peer.follow(now);
        }
        match (self.reentry(port), now) {
            (Some(reentry), Some(now)) => reentry.follow_mac(now),
            _ => Ok(()),
        }
    }

    /// Watches the TAP device of a port.
    ///
    /// # Errors
    /// The reason of the kernel.
    pub(super) fn watch_tap(&mut self, port: usize, queues: &[TapQueue]) -> Result<(), String> {
        let watch = queues.first().map(TapQueue::watch).transpose();
        let watch = watch.map_err(|error| format!("watching its TAP device: {error}"))?;
        self.tap_watches.extend(watch.map(|watch| (port, watch)));
        Ok(())
    }

    /// Returns a port whose TAP device was removed, and the name of the device.
    pub(crate) fn removed_tap(&self) -> Option<(usize, String)> {
        let removed = self.tap_watches.iter().find(|(_, watch)| watch.is_removed());
        removed.map(|(port, watch)| (*port, watch.name().to_owned()))
    }

    /// Returns true if the device of a port was opened on an interface that exists no longer,
    /// although another one may have its index now.
    pub(crate) fn has_lost_interface(&self, port: usize) -> bool {
        let is_of = |number: usize| number == port;
        let mut xdp = self.af_xdp.iter().filter(|(number, _)| is_of(*number));
        let mut packet = self.af_packet.iter().filter(|(number, _)| is_of(*number));
        xdp.any(|(_, device)| device.has_lost_interface())
            || packet.any(|(_, device)| device.has_lost_interface())
    }

    /// Returns true if DPDK runs.
    pub(crate) fn has_dpdk(&self) -> bool {
        self.dpdk.is_some()
    }

    /// Returns the re-entry of a port.
    pub(crate) fn reentry(&mut self, port: usize) -> Option<&mut PortReentry> {
        self.reentries.iter_mut().find(|(number, _)| *number == port).map(|(_, it)| it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_not_replaced_once_all_frames_are_linuxs() {
        let mut devices = Devices::default();
        devices.add_lane_rules(0, &Rules::default());
        devices.replace_rules(0, &Rules::default()).expect("the application runs");
        devices.release(false);
        // Steering that is replaced now would claim frames for lanes that close.
        let error = devices.replace_rules(0, &Rules::default()).unwrap_err();
        assert!(error.contains("the application is ending"), "{error}");
    }
}
