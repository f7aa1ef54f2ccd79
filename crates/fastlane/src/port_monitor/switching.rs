//! Switching of a port to another driver while the lanes run.
//!
//! The new device is opened beside the present one, so a switch that fails changes nothing. The
//! lanes send by the new queues, and receive by both. Then the claims move, and the former queues
//! leave once the lanes have received everything that has arrived at them.
//!
//! A PCI device that changes between the kernel's driver and DPDK's is never both: see
//! [`rebinding`](super::rebinding).

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use fastlane_core::QueueChange;
use fastlane_kernel::Interface;
use fastlane_table::counters::PortCounter;

use super::monitored_port::{MonitoredPort, Phase, down_reason, xdp_queues};
use super::switch_stage::{PortSwitch, Progress, Stage};
use super::{PortMonitor, Surroundings, lock};
use crate::config::plan::PortPlan;
use crate::config::raw::Driver;
use crate::open::{
    Devices, LaneMemory, Reopened, ReopenedDevice, open_beside, warn_of_missing_queues,
};
use crate::port_switch::SwitchRequest;
use crate::session::{Switch, SwitchReport};

/// Longest wait for the peer of a new device.
const CONNECT: Duration = Duration::from_secs(3);

/// Longest wait until the former queues are empty.
const SETTLE: Duration = Duration::from_secs(1);

/// Time in which lanes publish the losses of queues that have left.
const PUBLISH: Duration = Duration::from_millis(20);

/// Losses of a port, other than those on the way into Linux and those that the application wants.
const LOSSES: [PortCounter; 8] = [
    PortCounter::DropTransmitFull,
    PortCounter::DropTransmitError,
    PortCounter::DropTransmitLength,
    PortCounter::DropCopyNoFrame,
    PortCounter::DropNoFrame,
    PortCounter::DropReceiveLength,
    PortCounter::DropDeviceFull,
    PortCounter::DropDeviceInvalid,
];

impl PortMonitor<'_> {
    /// Begins the switches that were asked for.
    pub(super) fn begin_switches(&mut self) {
        while let Some(SwitchRequest { switch, reply }) = self.switches.next() {
            if let Err(reason) = self.begin_switch(&switch, &reply) {
                tracing::warn!("port `{}`: not switched: {reason}", switch.port);
                let _ = reply.try_send(Err(reason));
            }
        }
    }

    pub(super) fn begin_switch(
        &mut self,
        Switch { port: name, driver }: &Switch,
        reply: &SyncSender<Result<SwitchReport, String>>,
    ) -> Result<(), String> {
        let index =
            self.ports.iter().position(|port| port.plan.name == *name).ok_or_else(|| {
                let names: Vec<&str> = self.ports.iter().map(|port| &*port.plan.name).collect();
                format!("there is no port `{name}`; there are {}", names.join(", "))
            })?;
        if lock(self.around.devices).agent.is_some() {
            let reason = "the agent has opened the ports, and it cannot switch them yet; restart \
                          the application with another configuration";
            return Err(reason.to_owned());
        }
        let port = &self.ports[index];
        if !matches!(port.phase, Phase::Open) || port.is_removed || port.was_removed() {
            return Err("it is being reopened or switched; try again when it is up".to_owned());
        }
        let plan = self.plan_with(port, driver)?;
        let begin = Instant::now();
        let (losses, reply) = (self.losses(port.number), reply.clone());
        let rebound = self.rebound(index, &plan)?;
        let mut switch = PortSwitch {
            plan,
            mode: String::new(),
            queues: 0,
            interface: None,
            stage: Stage::Settling,
            begin,
            since: begin,
            silence: None,
            silent_seconds: 0.0,
            losses,
            reply,
        };
        switch.stage = match rebound {
            Some(device) => {
                switch.silence = Some(begin);
                self.leave(index);
                Stage::Leaving(device)
            }
            None => {
                let opened = self.open_next(index, &switch.plan)?;
                switch.record(&opened);
                Stage::Connecting(Box::new(opened))
            }
        };
        let now = describe(&switch.plan, &switch.mode);
        tracing::info!("port `{name}`: switching to {now}");
        self.ports[index].phase = Phase::Switching(Box::new(switch));
        Ok(())
    }

    /// Opens the next device of a port beside the present one. Packets labelled `Kernel` enter
    /// Linux beside both.
    fn open_next(&self, index: usize, next: &PortPlan) -> Result<Reopened, String> {
        self.warn_of_entrance(index, |devices| devices.enter_beside_both(next));
        self.open_beside(next).inspect_err(|_| self.enter_as_before(index))
    }

    /// Lets packets labelled `Kernel` enter Linux as before a switch that fails.
    fn enter_as_before(&self, index: usize) {
        let number = self.ports[index].number;
        self.warn_of_entrance(index, |devices| devices.enter_as_before(number));
    }

    /// Changes the path of a port into Linux, and logs a refusal.
    fn warn_of_entrance(
        &self,
        index: usize,
        change: impl FnOnce(&mut Devices) -> Result<(), String>,
    ) {
        if let Err(reason) = change(&mut lock(self.around.devices)) {
            tracing::warn!("port `{}`: its path into Linux: {reason}", self.ports[index].plan.name);
        }
    }

    /// Returns the settings of a port with another driver, and the rules in force.
    ///
    /// # Errors
    /// The reason why the port cannot have the driver.
    fn plan_with(&self, port: &MonitoredPort, driver: &Driver) -> Result<PortPlan, String> {
        let (number, devices) = (port.number, lock(self.around.devices));
        let mut at_start = self.around.plan.clone();
        for planned in &mut at_start.ports {
            let in_force = devices.rules_in_force(usize::from(planned.id.0));
            planned.rules = in_force.cloned().unwrap_or_default();
        }
        let current = self.ports.iter().map(|port| &port.plan);
        let plan = at_start.with_driver(number, driver.clone(), current);
        let mut plan = plan.map_err(|error| error.to_string())?;
        plan.rules.clone_from(&at_start.ports[number].rules);
        at_start.check_change(&at_start.ports[number], &port.plan, &plan)?;
        devices.check_rules(&plan)?;
        devices.check_memory(&plan)?;
        Ok(plan)
    }

    /// Opens a device while the lanes run.
    pub(super) fn open_beside(&self, plan: &PortPlan) -> Result<Reopened, String> {
        let memory = LaneMemory {
            layouts: self.lanes.layouts(),
            other_queues: xdp_queues(&self.ports, self.lanes.layouts().len()),
            agent: None,
        };
        let mut devices = lock(self.around.devices);
        let opened = open_beside(self.around.plan, plan, &mut devices, &memory);
        opened.map_err(|error| error.to_string())
    }

    /// Continues the switch of a port for which no lane has a request.
    pub(super) fn advance_switch(&mut self, index: usize) {
        let open = std::mem::replace(&mut self.ports[index].phase, Phase::Open);
        let Phase::Switching(mut switch) = open else { return };
        let elapsed = switch.since.elapsed();
        let next = match std::mem::replace(&mut switch.stage, Stage::Settling) {
            Stage::Connecting(opened) if opened.is_connected() => {
                Progress::Stage(self.join(index, *opened))
            }
            Stage::Connecting(opened) if elapsed < CONNECT => {
                Progress::Wait(Stage::Connecting(opened))
            }
            Stage::Connecting(_) => {
                let seconds = CONNECT.as_secs();
                Progress::Refuse(format!(
                    "no peer has connected within {seconds} s; start it first"
                ))
            }
            Stage::Joining(device) => match self.exchange(index, &mut switch, *device) {
                Ok(()) => {
                    self.request(index, QueueChange::Settle);
                    Progress::Stage(Stage::Settling)
                }
                Err(reason) => {
                    self.request(index, QueueChange::Withdraw);
                    Progress::Stage(Stage::Withdrawing(reason))
                }
            },
            Stage::Settling => {
                self.withdraw();
                self.retire(index);
                Progress::Stage(Stage::Closing)
            }
            Stage::Withdrawing(reason) => {
                self.retire(index);
                Progress::Stage(Stage::Undoing(reason))
            }
            Stage::Closing if elapsed >= PUBLISH => return self.end_switch(index, *switch),
            Stage::Closing => Progress::Wait(Stage::Closing),
            Stage::Undoing(reason) => Progress::Refuse(reason),
            other => self.advance_rebinding(index, &mut switch, other),
        };
        match next {
            Progress::Stage(stage) => (switch.stage, switch.since) = (stage, Instant::now()),
            Progress::Wait(stage) => switch.stage = stage,
            Progress::Refuse(reason) => return self.refuse_switch(index, &switch, reason),
        }
        self.ports[index].phase = Phase::Switching(switch);
    }

    /// Requests a change of the queues of a port from all its lanes.
    pub(super) fn request(&mut self, index: usize, change: QueueChange) {
        let port = &self.ports[index];
        for lane in &port.plan.lanes {
            self.lanes.request(*lane, port.number, change, vec![], vec![]);
        }
    }

    /// Ends the wait of lanes for empty queues if it takes too long.
    pub(super) fn hurry(&self, index: usize) {
        let port = &self.ports[index];
        let Phase::Switching(switch) = &port.phase else { return };
        let waits = matches!(switch.stage, Stage::Settling | Stage::Leaving(_));
        if waits && switch.since.elapsed() >= SETTLE {
            port.plan.lanes.iter().for_each(|lane| self.lanes.hurry(*lane));
        }
    }

    /// Passes the new queues to the lanes, beside the present ones.
    fn join(&mut self, index: usize, opened: Reopened) -> Stage {
        let Reopened { queues, device, .. } = opened;
        self.pass_queues(index, queues);
        Stage::Joining(Box::new(device))
    }

    pub(super) fn pass_queues(&mut self, index: usize, mut queues: Vec<super::LaneQueue>) {
        let port = &self.ports[index];
        for &lane in &port.plan.lanes {
            let mine = queues.extract_if(.., |(number, _)| *number == lane);
            let installed = mine.map(|(_, queue)| queue).collect();
            self.lanes.request(lane, port.number, QueueChange::Join, installed, vec![]);
        }
    }

    /// Lets the new device claim what the present one has claimed, and takes over its interface.
    fn exchange(
        &mut self,
        index: usize,
        switch: &mut PortSwitch,
        device: ReopenedDevice,
    ) -> Result<(), String> {
        self.start_device(index, &switch.plan, switch.interface.as_ref(), device)?;
        let silence = switch.silence.take().map(|since| since.elapsed().as_secs_f64());
        switch.silent_seconds = silence.unwrap_or_default();
        Ok(())
    }

    /// Lets a device claim frames whose queues the lanes have. Packets labelled `Kernel` enter
    /// Linux on its interface.
    pub(super) fn start_device(
        &mut self,
        index: usize,
        plan: &PortPlan,
        interface: Option<&Interface>,
        device: ReopenedDevice,
    ) -> Result<(), String> {
        let mut devices = lock(self.around.devices);
        devices.exchange_device(plan, device)?;
        if let Some(interface) = interface {
            if let Err(reason) = devices.enter_by(plan, interface) {
                tracing::warn!("port `{}`: its path into Linux: {reason}", plan.name);
            }
            self.linux_interfaces[self.ports[index].number] = Some(interface.index);
        }
        drop(devices);
        if let Some(mirror) = self.around.mirror {
            mirror.set_interfaces(self.linux_interfaces.clone());
        }
        Ok(())
    }

    /// Takes the duplicates of open sockets back: while one is open, closing a queue does not
    /// unbind its socket.
    pub(super) fn withdraw(&self) {
        self.around.handover.withdraw_ports();
    }

    /// Closes the device that a port leaves, disconnects the queues that lanes have given up, and
    /// lets the lanes take their frames back.
    pub(super) fn retire(&mut self, index: usize) {
        let port = &mut self.ports[index];
        // First, because only without its link a queue counts what the peer has not read.
        lock(self.around.devices).close_leaving(port.number);
        for (lane, mut queue) in port.detached.drain(..) {
            self.lanes.disconnect(lane, &mut queue);
            self.lanes.request(lane, port.number, QueueChange::Settle, vec![], vec![queue]);
        }
    }

    fn end_switch(&mut self, index: usize, switch: PortSwitch) {
        let number = self.ports[index].number;
        let PortSwitch { plan, mode, queues, interface, begin, losses, reply, .. } = switch;
        let silent_seconds = switch.silent_seconds;
        let lost = self.losses(number).saturating_sub(losses);
        let port = &mut self.ports[index];
        let (mut before, now) = (String::new(), describe(&plan, &mode));
        self.around.description.change_port(number, |facts| {
            before = describe(&port.plan, &facts.mode);
            facts.driver = plan.driver.name().to_owned();
            facts.interface = interface.as_ref().map(|it| it.name.clone());
            (facts.mode, facts.queues) = (mode, queues);
            facts.switches += 1;
        });
        let seconds = begin.elapsed().as_secs_f64();
        tracing::info!(
            "port `{}`: switched from {before} to {now} in {seconds:.3} s, {silent_seconds:.3} s \
             of them without traffic; {lost} packets lost",
            plan.name
        );
        warn_of_missing_queues(&plan, queues, port.needed_queues);
        // The state of a device that Linux does not have is its link's.
        if let Some(interface) = &interface {
            self.around.counters.set_down_reason(number, down_reason(interface));
        }
        (port.plan, port.interface, port.is_due) = (plan, interface, true);
        let report = SwitchReport { before, now, lost, silent_seconds, seconds };
        let _ = reply.try_send(Ok(report));
    }

    fn refuse_switch(&mut self, index: usize, switch: &PortSwitch, reason: String) {
        let port = &mut self.ports[index];
        tracing::warn!("port `{}`: not switched: {reason}", port.plan.name);
        let _ = switch.reply.try_send(Err(reason));
        if switch.silence.is_some() {
            // As after a removal, it is reopened when that is possible.
            (port.phase, port.since, port.is_removed) = (Phase::Closed, Instant::now(), true);
        } else {
            self.enter_as_before(index);
        }
    }

    /// Returns the losses of a port and of its VLANs.
    pub(super) fn losses(&self, port: usize) -> u64 {
        let Surroundings { counters, plan, .. } = self.around;
        // Packets that find no queue are counted where they have arrived.
        let no_port = |number| counters.port_total(number, PortCounter::DropNoPort);
        let of_port = |port: &PortPlan| {
            let number = usize::from(port.id.0);
            LOSSES.iter().map(|counter| counters.port_total(number, *counter)).sum()
        };
        let of_ports = plan.carried_by(plan.ports[port].id).map(of_port);
        of_ports.chain((0..counters.ports()).map(no_port)).sum()
    }
}

/// Describes the driver, the interface and the mode of a port.
fn describe(plan: &PortPlan, mode: &str) -> String {
    let driver = plan.driver.with_interface();
    if mode.is_empty() { driver } else { format!("{driver} ({mode})") }
}
