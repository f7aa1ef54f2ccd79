//! Interfaces and DPDK devices of ports that change while the application runs: removed, created
//! again, other properties. The main thread follows the events of the kernel and of DPDK, and
//! reopens ports.
//!
//! The lanes run on meanwhile. They give up the queues of a removed interface or device and get new
//! ones ([`LaneSwaps`]); all that waits or allocates happens here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_core::{Queue, QueueChange};
use fastlane_kernel::Interface;
use fastlane_table::counters::{Counters, DownReason, PortCounter};

use crate::Error;
use crate::agent::Interfaces;
use crate::config::plan::Plan;
use crate::config::raw::Driver;
use crate::describe::Description;
use crate::handover::Handover;
use crate::mirror::MirrorThread;
use crate::open::{Devices, LaneMemory, ReopenedDevice, reopen};
use crate::port_switch::SwitchRequests;

mod interface_events;
mod lane_swaps;
mod load_switch;
mod monitored_port;
mod port_policies;
mod rebinding;
mod switch_stage;
mod switching;
mod tap_devices;

use interface_events::InterfaceEvents;
pub(crate) use lane_swaps::{LaneSwap, LaneSwaps};
use monitored_port::{
    MonitoredPort, Phase, configured_name, down_reason, report_changes, xdp_queues,
};
use port_policies::PortPolicy;
use tap_devices::TapDevices;

/// Interval at which the main thread looks at lanes that replace queues.
const SWAP_INTERVAL: Duration = Duration::from_millis(2);

/// Interval between attempts to reopen a port. An event of its interface leads to one at once.
const RETRY: Duration = Duration::from_millis(100);

/// Interval between attempts to reopen a DPDK port: DPDK logs each that fails.
const DPDK_RETRY: Duration = Duration::from_millis(500);

/// Parts of the application that follow a change of a port.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) devices: &'a Mutex<Devices>,
    pub(crate) counters: &'a Counters,
    pub(crate) handover: &'a Handover,
    pub(crate) mirror: Option<&'a MirrorThread>,
    pub(crate) description: &'a Description,
}

/// Queue with the index of its lane.
type LaneQueue = (usize, Box<dyn Queue>);

/// Monitor of the interfaces that ports share with Linux, and of DPDK's devices. It belongs to the
/// main thread.
pub(crate) struct PortMonitor<'a> {
    around: Surroundings<'a>,
    events: InterfaceEvents,
    /// Network namespace of the interfaces.
    interfaces: Interfaces,
    /// Eventfd of removed DPDK devices.
    removals: Option<OwnedFd>,
    lanes: LaneSwaps,
    switches: SwitchRequests,
    /// Ports that change their driver with the load.
    policies: Vec<PortPolicy>,
    taps: TapDevices,
    ports: Vec<MonitoredPort>,
    /// Index of each port's interface in Linux.
    linux_interfaces: Vec<Option<u32>>,
}

impl<'a> PortMonitor<'a> {
    /// Creates the monitor of the interfaces of an application.
    pub(crate) fn new(
        around: Surroundings<'a>,
        interfaces: Vec<(usize, Interface)>,
        linux_interfaces: Vec<Option<u32>>,
        lanes: LaneSwaps,
        switches: SwitchRequests,
    ) -> Self {
        let source = lock(around.devices).interfaces.clone();
        for (number, interface) in &interfaces {
            around.counters.set_down_reason(*number, down_reason(interface));
        }
        let mut interfaces = interfaces;
        let mut interface = |number| {
            let at = interfaces.iter().position(|(it, _)| *it == number)?;
            Some(interfaces.swap_remove(at).1)
        };
        let policies = port_policies::of(around);
        let ports = around.plan.ports.iter().cloned();
        let ports = ports.map(|port| {
            let interface = interface(usize::from(port.id.0));
            MonitoredPort::new(port, interface, around)
        });
        Self {
            around,
            events: InterfaceEvents::of(&source),
            interfaces: source,
            removals: lock(around.devices).removal_events(),
            lanes,
            switches,
            policies,
            taps: TapDevices::new(),
            ports: ports.collect(),
            linux_interfaces,
        }
    }

    /// Returns the parts of the application.
    pub(crate) fn surroundings(&self) -> Surroundings<'a> {
        self.around
    }

    /// Returns the descriptors that become readable when an interface changes, a device is removed
    /// or a switch is asked for.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let requests = std::iter::once(self.switches.interrupt());
        let events = self.events.interrupt().into_iter();
        events.chain(self.removals.iter().map(AsFd::as_fd)).chain(requests)
    }

    /// Returns the time until the next step, at most `most`.
    pub(crate) fn timeout(&self, most: Duration) -> Duration {
        let switches = self.ports.iter().any(|it| matches!(it.phase, Phase::Switching(_)));
        if self.lanes.is_busy() || switches { most.min(SWAP_INTERVAL) } else { most }
    }

    /// Follows the events since the last step and continues replacements.
    ///
    /// # Errors
    /// Returns an error if the run must end: an interface was removed, and the port shall not or
    /// cannot be reopened.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        self.taps.check(self.around, &self.ports)?;
        self.receive_events();
        self.begin_switches();
        port_policies::follow(self);
        for (lane, result) in self.lanes.step() {
            let port = self.ports.iter_mut().find(|port| port.number == result.port);
            let Some(port) = port else { continue };
            port.detached.extend(result.detached.into_iter().map(|queue| (lane, queue)));
        }
        (0..self.ports.len()).try_for_each(|index| self.advance(index))
    }

    /// Leaves all queues that lanes have given up to their lanes, before these close, and to Linux
    /// the frames of devices that are being opened.
    pub(crate) fn end(&mut self) {
        for port in &mut self.ports {
            if let Some(Err(error)) = port.phase.next_device().map(ReopenedDevice::release) {
                let name = &port.plan.name;
                tracing::warn!("port `{name}`: steering stays until it is closed: {error}");
            }
            for (lane, mut queue) in port.detached.drain(..) {
                queue.disconnect();
                self.lanes.leave(lane, queue);
            }
        }
        self.lanes.end();
    }

    fn receive_events(&mut self) {
        if let Some(removals) = &self.removals {
            // Each step looks at all devices, so the count does not matter.
            let _ = rustix::io::read(removals, &mut [0; 8]);
        }
        let ports = &mut self.ports;
        let is_complete = self.events.receive(|event| {
            ports.iter_mut().for_each(|port| port.note(&event));
        });
        if !is_complete {
            self.ports.iter_mut().for_each(|port| port.is_due = true);
        }
    }

    fn advance(&mut self, index: usize) -> Result<(), Error> {
        let number = self.ports[index].number;
        if self.lanes.has_requests(number) {
            self.hurry(index);
            return Ok(());
        }
        match &self.ports[index].phase {
            Phase::Open => self.look(index),
            Phase::Detaching => {
                self.close(index);
                // DPDK releases a device once its last queue is dropped.
                let port = &self.ports[index];
                let is_released = port.interface.is_some() && Instant::now() >= port.retry;
                if is_released { self.try_reopen(index) } else { Ok(()) }
            }
            Phase::Closed => {
                let port = &self.ports[index];
                let is_due = port.is_due || Instant::now() >= port.retry;
                if is_due { self.try_reopen(index) } else { Ok(()) }
            }
            Phase::Installing(_) => self.start(index),
            Phase::Switching(_) => {
                self.advance_switch(index);
                Ok(())
            }
        }
    }

    /// Compares the interface of an open port with its last state.
    fn look(&mut self, index: usize) -> Result<(), Error> {
        let port = &mut self.ports[index];
        let Some(before) = port.interface.clone() else {
            let is_removed = lock(self.around.devices).is_removed(port.number);
            return if is_removed { self.removed(index) } else { Ok(()) };
        };
        let counters = self.around.counters.shared_port(port.number);
        let uncovered = counters.load(PortCounter::SteerUncovered);
        let is_uncovered = std::mem::replace(&mut port.uncovered, uncovered) != uncovered;
        if !std::mem::take(&mut port.is_due) && !is_uncovered {
            return Ok(());
        }
        // Its sockets are dead also if an interface has its index again.
        let was_removed = self.has_been_removed(index);
        let now = self.interfaces.again(&before);
        let port = &mut self.ports[index];
        let now = match now {
            Ok(Some(now)) if !was_removed => now,
            Ok(_) => return self.removed(index),
            Err(error) => {
                tracing::debug!("port {}: {error}", port.number);
                port.is_due = true;
                return Ok(());
            }
        };
        port.interface = Some(now.clone());
        let number = port.number;
        let plan = &self.ports[index].plan;
        if before.mtu != now.mtu
            && let Err(error) = lock(self.around.devices).set_mtu(number, now.mtu)
        {
            tracing::warn!("port `{}`: {error}; restart the application", plan.name);
        }
        report_changes(plan, &before, &now);
        if before.carrier != now.carrier {
            self.around.counters.set_down_reason(number, down_reason(&now));
        }
        let followed = |it: &Interface| (it.mac, it.mtu, it.carrier);
        let is_changed = match self.interfaces.agent() {
            None => before.mac != now.mac,
            Some(_) => followed(&before) != followed(&now),
        };
        if is_changed || self.ports[index].unfollowed.is_some() {
            self.follow(index);
        }
        let is_af_xdp = matches!(self.ports[index].plan.driver, Driver::AfXdp(_));
        if is_af_xdp && before.receive_queues != now.receive_queues {
            self.queues_changed(index, &before, &now);
        }
        Ok(())
    }

    /// Returns true if the interface of a port was removed since it was opened: an event said so,
    /// or, because events can be lost, the kernel has detached its steering program.
    fn has_been_removed(&self, index: usize) -> bool {
        let port = &self.ports[index];
        port.was_removed() || lock(self.around.devices).has_lost_interface(port.number)
    }

    fn removed(&mut self, index: usize) -> Result<(), Error> {
        let port = &mut self.ports[index];
        port.is_removed = true;
        let plan = &port.plan;
        self.around.counters.set_down_reason(port.number, Some(DownReason::Removed));
        let (what, remedy, state) = port.removal();
        let Some(within) = plan.reopen_within else {
            return Err(Error::Run(format!(
                "port `{}`: the {what} was removed; {remedy} it and start the application again, \
                 or write `\"on-removal\": \"reopen\"`",
                plan.name
            )));
        };
        tracing::warn!(
            "port `{}`: the {what} was removed; the port is reopened if it is {state} within {} s",
            plan.name,
            within.as_secs()
        );
        if let Err(error) = lock(self.around.devices).follow(port.number, None) {
            tracing::warn!("port `{}`: its kernel peer: {error}", plan.name);
        }
        self.detach(index);
        Ok(())
    }

    /// Lets re-entry or the kernel peer of a port follow its interface. If the agent is away, this
    /// is tried again.
    fn follow(&mut self, index: usize) {
        let port = &mut self.ports[index];
        let followed = lock(self.around.devices).follow(port.number, port.interface.as_ref());
        let refusal = followed.err();
        if let Some(reason) = refusal.as_ref().filter(|it| port.unfollowed.as_ref() != Some(*it)) {
            let name = &port.plan.name;
            tracing::warn!("port `{name}`: its path into Linux does not follow yet: {reason}");
        }
        port.is_due |= refusal.is_some();
        port.unfollowed = refusal;
    }

    /// Reopens a port whose interface has another number of queues: frames on added ones would
    /// reach nobody.
    fn queues_changed(&mut self, index: usize, before: &Interface, now: &Interface) {
        let port = &mut self.ports[index];
        let plan = &port.plan;
        let (Interface { name, receive_queues, .. }, before) = (now, before.receive_queues);
        let change = format!("port `{}`: {name} has {receive_queues} receive queues", plan.name);
        if plan.reopen_within.is_none() {
            tracing::warn!(
                "{change} instead of {before}; frames on other queues stay in Linux; restart the \
                 application"
            );
            return;
        }
        tracing::warn!("{change} instead of {before}; the port is reopened");
        self.around.counters.set_down_reason(port.number, Some(DownReason::Reopening));
        if let Err(error) = lock(self.around.devices).release_port(port.number) {
            tracing::warn!(
                "port `{}`: steering stays until the port is closed: {error}",
                plan.name
            );
        }
        self.detach(index);
    }

    /// Begins the replacement of a port: makes all lanes give up its queues.
    fn detach(&mut self, index: usize) {
        let port = &mut self.ports[index];
        (port.since, port.refusal) = (Instant::now(), None);
        self.take_queues(index);
    }

    /// Makes all lanes give up the queues of a port.
    fn take_queues(&mut self, index: usize) {
        let port = &mut self.ports[index];
        port.phase = Phase::Detaching;
        for lane in &port.plan.lanes {
            self.lanes.request(*lane, port.number, QueueChange::Replace, vec![], vec![]);
        }
    }

    /// Closes a port whose queues the lanes have given up.
    fn close(&mut self, index: usize) {
        let port = &mut self.ports[index];
        // Duplicates of its sockets: while one is open, closing a queue does not unbind its socket.
        self.around.handover.withdraw_ports();
        lock(self.around.devices).close_port(port.number);
        for (lane, queue) in &mut port.detached {
            self.lanes.disconnect(*lane, queue);
        }
        port.phase = Phase::Closed;
        if port.is_removed {
            // No driver has the frames any more.
            for (lane, queue) in port.detached.drain(..) {
                self.lanes.request(lane, port.number, QueueChange::Replace, vec![], vec![queue]);
            }
        }
    }

    /// Opens a closed port if its interface exists and is up.
    fn try_reopen(&mut self, index: usize) -> Result<(), Error> {
        let port = &mut self.ports[index];
        let plan = &port.plan;
        let retry = if port.interface.is_some() { RETRY } else { DPDK_RETRY };
        (port.is_due, port.retry) = (false, Instant::now() + retry);
        let (down, reason) = match configured_name(plan).map(|name| self.interfaces.query(name)) {
            Some(Ok(interface)) if !interface.up => {
                let name = interface.name;
                let reason = format!("{name} is down; run `ip link set dev {name} up`");
                (DownReason::LinkDown, format!("port `{}`: {reason}", plan.name))
            }
            Some(Err(error)) => (DownReason::Removed, format!("port `{}`: {error}", plan.name)),
            is_there => match self.reopen(index) {
                Ok(()) => return Ok(()),
                // DPDK's refusal does not tell if the device is there.
                Err(error) if is_there.is_none() => (DownReason::Removed, error.to_string()),
                Err(error) => (DownReason::Reopening, error.to_string()),
            },
        };
        self.refused(index, down, reason)
    }

    /// Records why a port could not be reopened.
    ///
    /// # Errors
    /// Returns an error once its time has passed.
    fn refused(&mut self, index: usize, down: DownReason, reason: String) -> Result<(), Error> {
        let port = &mut self.ports[index];
        self.around.counters.set_down_reason(port.number, Some(down));
        let (name, within) = (&port.plan.name, port.plan.reopen_within);
        if within.is_none_or(|within| port.since.elapsed() >= within) {
            let [time, longer] = within.map_or_else(<[String; 2]>::default, |within| {
                let time = format!(" within {} s", within.as_secs());
                [time, ", or increase `reopen-within-s`".to_owned()]
            });
            return Err(Error::Run(format!(
                "{reason}\nport `{name}` could not be reopened{time}; remove this obstacle and \
                 start the application again{longer}"
            )));
        }
        if down != DownReason::Removed && port.refusal.as_ref() != Some(&reason) {
            tracing::warn!("{reason}; this is tried again");
        }
        port.refusal = Some(reason);
        Ok(())
    }

    /// Opens a port and passes its queues to the lanes.
    fn reopen(&mut self, index: usize) -> Result<(), Error> {
        let others = self.ports.iter().enumerate().filter(|(other, _)| *other != index);
        let other_queues = xdp_queues(others.map(|(_, port)| port), self.lanes.layouts().len());
        let port = &mut self.ports[index];
        let plan = &port.plan;
        let agent = lock(self.around.devices).agent.clone();
        let memory = LaneMemory { layouts: self.lanes.layouts(), other_queues, agent };
        port.removed.clear(); // they were removed before it is opened
        let reopened = reopen(self.around.plan, plan, &mut lock(self.around.devices), &memory)?;
        port.interface = reopened.interface;
        port.phase = Phase::Installing(Box::new(reopened.device));
        let mut queues = reopened.queues;
        for &lane in &plan.lanes {
            let mine = queues.extract_if(.., |(number, _)| *number == lane);
            let installed = mine.map(|(_, queue)| queue).collect();
            let mine = port.detached.extract_if(.., |(number, _)| *number == lane);
            let retired = mine.map(|(_, queue)| queue).collect();
            self.lanes.request(lane, port.number, QueueChange::Replace, installed, retired);
        }
        Ok(())
    }

    /// Starts a reopened port, whose queues the lanes have. If a queue would receive nothing, the
    /// port is closed and opened again.
    ///
    /// # Errors
    /// Returns an error once the time to reopen it has passed.
    fn start(&mut self, index: usize) -> Result<(), Error> {
        let port = &mut self.ports[index];
        let Phase::Installing(device) = std::mem::replace(&mut port.phase, Phase::Open) else {
            return Ok(());
        };
        // It has an interface again, whose driver may have frames.
        port.is_removed = false;
        let queues = device.queues();
        let started = lock(self.around.devices).start_port(port.number, *device);
        if let Err(error) = started {
            let reason = format!("port `{}`: a queue receives nothing: {error}", port.plan.name);
            self.take_queues(index);
            return self.refused(index, DownReason::Reopening, reason);
        }
        let port = &mut self.ports[index];
        if let Some(interface) = &port.interface
            && self.interfaces.agent().is_none()
        {
            self.linux_interfaces[port.number] = Some(interface.index);
            if let Some(mirror) = self.around.mirror {
                mirror.set_interfaces(self.linux_interfaces.clone());
            }
        }
        port.report_return(self.around, queues);
        port.is_due = true; // the interface may have changed since it was opened
        self.follow(index);
        Ok(())
    }
}

fn lock(devices: &Mutex<Devices>) -> MutexGuard<'_, Devices> {
    devices.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
