//! Switching of a port to another driver while the lanes run.
//!
//! The new device is opened beside the present one, so a switch that fails changes nothing. The
//! lanes send by the new queues, and receive by both. Then the claims move, and the former queues
//! leave once the lanes have received everything that has arrived at them.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use fastlane_core::QueueChange;
use fastlane_kernel::Interface;
use fastlane_table::counters::PortCounter;

use super::monitored_port::{Phase, device_name};
use super::{PortMonitor, lock};
use crate::config::plan::PortPlan;
use crate::config::raw::Driver;
use crate::open::{CLOSED_DRIVERS, LaneMemory, Reopened, ReopenedDevice, open_beside};
use crate::port_switch::SwitchRequest;
use crate::session::{Switch, SwitchReport};

/// Longest wait for the peer of a new device.
const CONNECT: Duration = Duration::from_secs(3);

/// Longest wait until the former queues are empty.
const SETTLE: Duration = Duration::from_secs(1);

/// Time in which lanes publish the losses of queues that have left.
const PUBLISH: Duration = Duration::from_millis(20);

/// Losses of a port, other than those on the way into Linux and those that the application wants.
const LOSSES: [PortCounter; 9] = [
    PortCounter::DropNoPort,
    PortCounter::DropTransmitFull,
    PortCounter::DropTransmitError,
    PortCounter::DropTransmitLength,
    PortCounter::DropCopyNoFrame,
    PortCounter::DropNoFrame,
    PortCounter::DropReceiveLength,
    PortCounter::DropDeviceFull,
    PortCounter::DropDeviceInvalid,
];

/// Switch of a port in progress.
pub(super) struct PortSwitch {
    /// Settings of the port with the new driver.
    plan: PortPlan,
    /// Mode selected by the new driver.
    mode: String,
    queues: usize,
    /// Interface of the new device.
    interface: Option<Interface>,
    stage: Stage,
    begin: Instant,
    /// Begin of the stage.
    since: Instant,
    /// Losses of the port at the begin.
    losses: u64,
    reply: SyncSender<Result<SwitchReport, String>>,
}

/// Stage of a switch.
enum Stage {
    /// The new device waits for its peer.
    Connecting(Box<Reopened>),
    /// The lanes are receiving the new queues.
    Joining(Box<ReopenedDevice>),
    /// The lanes are giving up the former queues.
    Settling,
    /// The lanes take the frames of the former queues back.
    Closing,
    /// The lanes are giving up the new queues again, for a reason.
    Withdrawing(String),
    /// The lanes take the frames of the new queues back.
    Undoing(String),
}

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

    fn begin_switch(
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
        if !matches!(port.phase, Phase::Open) || port.is_removed {
            return Err("it is being reopened or switched; try again when it is up".to_owned());
        }
        let current = self.ports.iter().map(|port| &port.plan);
        let plan = self.around.plan.with_driver(port.number, driver.clone(), current);
        let plan = plan.map_err(|error| error.to_string())?;
        check(&port.plan, &plan)?;
        let memory = LaneMemory {
            layouts: self.lanes.layouts(),
            other_queues: self.queues_of_all(),
            agent: None,
        };
        let begin = Instant::now();
        let mut devices = lock(self.around.devices);
        let opened = open_beside(self.around.plan, &plan, &mut devices, &memory);
        let opened = opened.map_err(|error| error.to_string())?;
        drop(devices);
        tracing::info!("port `{name}`: switching to {}", describe(&plan, &opened.mode));
        let switch = PortSwitch {
            mode: opened.mode.clone(),
            queues: opened.queues.len(),
            interface: opened.interface.clone(),
            plan,
            stage: Stage::Connecting(Box::new(opened)),
            begin,
            since: begin,
            losses: self.losses(port.number),
            reply: reply.clone(),
        };
        self.ports[index].phase = Phase::Switching(Box::new(switch));
        Ok(())
    }

    /// Continues the switch of a port for which no lane has a request.
    pub(super) fn advance_switch(&mut self, index: usize) {
        let open = std::mem::replace(&mut self.ports[index].phase, Phase::Open);
        let Phase::Switching(mut switch) = open else { return };
        let number = self.ports[index].number;
        let stage = std::mem::replace(&mut switch.stage, Stage::Settling);
        let (next, change) = match stage {
            Stage::Connecting(opened) if opened.is_connected() => {
                let Reopened { queues, device, .. } = *opened;
                self.join(index, queues);
                (Stage::Joining(Box::new(device)), None)
            }
            Stage::Connecting(opened) if switch.since.elapsed() < CONNECT => {
                switch.stage = Stage::Connecting(opened);
                self.ports[index].phase = Phase::Switching(switch);
                return;
            }
            Stage::Connecting(_) => {
                let seconds = CONNECT.as_secs();
                let reason = format!("no peer has connected within {seconds} s; start it first");
                return self.refuse_switch(index, &switch, reason);
            }
            Stage::Joining(device) => match self.exchange(index, &mut switch, *device) {
                Ok(()) => (Stage::Settling, Some(QueueChange::Settle)),
                Err(reason) => (Stage::Withdrawing(reason), Some(QueueChange::Withdraw)),
            },
            Stage::Settling => {
                self.retire(index);
                lock(self.around.devices).close_leaving(number);
                (Stage::Closing, None)
            }
            Stage::Withdrawing(reason) => {
                self.retire(index);
                (Stage::Undoing(reason), None)
            }
            Stage::Closing if switch.since.elapsed() >= PUBLISH => {
                return self.end_switch(index, *switch);
            }
            Stage::Closing => {
                switch.stage = Stage::Closing;
                self.ports[index].phase = Phase::Switching(switch);
                return;
            }
            Stage::Undoing(reason) => return self.refuse_switch(index, &switch, reason),
        };
        if let Some(change) = change {
            for lane in self.ports[index].plan.lanes.clone() {
                self.lanes.request(lane, number, change, vec![], vec![]);
            }
        }
        (switch.stage, switch.since) = (next, Instant::now());
        self.ports[index].phase = Phase::Switching(switch);
    }

    /// Ends the wait of lanes for empty queues if it takes too long.
    pub(super) fn hurry(&self, index: usize) {
        let port = &self.ports[index];
        let Phase::Switching(switch) = &port.phase else { return };
        if matches!(switch.stage, Stage::Settling) && switch.since.elapsed() >= SETTLE {
            port.plan.lanes.iter().for_each(|lane| self.lanes.hurry(*lane));
        }
    }

    /// Passes the new queues to the lanes, beside the present ones.
    fn join(&mut self, index: usize, mut queues: Vec<super::LaneQueue>) {
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
        let port = &mut self.ports[index];
        let mut devices = lock(self.around.devices);
        devices.exchange_device(&switch.plan, device)?;
        if let Some(interface) = &switch.interface {
            if let Err(reason) = devices.enter_by(&switch.plan, interface) {
                tracing::warn!("port `{}`: its path into Linux: {reason}", port.plan.name);
            }
            self.linux_interfaces[port.number] = Some(interface.index);
        }
        drop(devices);
        if let Some(mirror) = self.around.mirror {
            mirror.set_interfaces(self.linux_interfaces.clone());
        }
        Ok(())
    }

    /// Disconnects the queues that lanes have given up, and lets the lanes take their frames back.
    fn retire(&mut self, index: usize) {
        let port = &mut self.ports[index];
        // Duplicates of its sockets: while one is open, closing a queue does not unbind its socket.
        self.around.handover.withdraw_ports();
        for (lane, mut queue) in port.detached.drain(..) {
            self.lanes.disconnect(lane, &mut queue);
            self.lanes.request(lane, port.number, QueueChange::Settle, vec![], vec![queue]);
        }
    }

    fn end_switch(&mut self, index: usize, switch: PortSwitch) {
        let number = self.ports[index].number;
        let PortSwitch { plan, mode, queues, interface, begin, losses, reply, .. } = switch;
        let lost = self.losses(number).saturating_sub(losses);
        let port = &mut self.ports[index];
        let (mut before, now) = (String::new(), describe(&plan, &mode));
        self.around.description.change_port(number, |facts| {
            before = join_mode(&facts.driver, facts.interface.as_deref(), &facts.mode);
            facts.driver = plan.driver.name().to_owned();
            facts.interface = interface.as_ref().map(|it| it.name.clone());
            (facts.mode, facts.queues) = (mode, queues);
        });
        let seconds = begin.elapsed().as_secs_f64();
        tracing::info!(
            "port `{}`: switched from {before} to {now} in {seconds:.3} s; {lost} packets lost",
            plan.name
        );
        (port.plan, port.interface, port.is_due) = (plan, interface, true);
        let silent_seconds = 0.0; // both devices were open
        let report = SwitchReport { before, now, lost, silent_seconds, seconds };
        let _ = reply.try_send(Ok(report));
    }

    fn refuse_switch(&mut self, index: usize, switch: &PortSwitch, reason: String) {
        let name = &self.ports[index].plan.name;
        tracing::warn!("port `{name}`: not switched: {reason}");
        let _ = switch.reply.try_send(Err(reason));
    }

    fn losses(&self, port: usize) -> u64 {
        let counters = self.around.counters;
        LOSSES.iter().map(|counter| counters.port_total(port, *counter)).sum()
    }
}

/// Checks that the lanes can have both devices at once, and that the new one can do what the port
/// was started for.
fn check(before: &PortPlan, now: &PortPlan) -> Result<(), String> {
    let opens = |driver: &Driver| {
        driver.is_shared() || matches!(driver, Driver::Dpdk(_) | Driver::Memif(_))
    };
    if !opens(&before.driver) || !opens(&now.driver) {
        return Err(CLOSED_DRIVERS.to_owned());
    }
    let kinds = std::mem::discriminant(&before.driver) == std::mem::discriminant(&now.driver);
    if kinds && device(before) == device(now) {
        return Err(format!(
            "it is on {} already, and two of its sockets cannot share the queues; switch it to \
             another driver first, then back with the new settings",
            describe(before, "")
        ));
    }
    if !now.rules.is_empty() && before.driver.is_shared() && !now.driver.is_shared() {
        return Err(format!(
            "its `steer` list is matched in Linux, and its lanes do not match it for {}; empty the \
             list, or start the application on that driver",
            now.driver.name()
        ));
    }
    if before.lanes != now.lanes || before.lane_by != now.lane_by {
        return Err("it would have other lanes; name them with `lanes`, and restart".to_owned());
    }
    Ok(())
}

/// Returns the interface, the device or the socket of a port.
fn device(plan: &PortPlan) -> &str {
    match &plan.driver {
        Driver::AfXdp(xdp) => &xdp.interface,
        Driver::AfPacket(packet) => &packet.interface,
        Driver::Memif(memif) => &memif.socket,
        _ => device_name(plan),
    }
}

/// Describes the driver, the interface and the mode of a port.
fn describe(plan: &PortPlan, mode: &str) -> String {
    let interface = plan.driver.is_shared().then(|| device(plan));
    join_mode(plan.driver.name(), interface, mode)
}

fn join_mode(driver: &str, interface: Option<&str>, mode: &str) -> String {
    let interface = interface.map(|name| format!(" on {name}")).unwrap_or_default();
    let mode = if mode.is_empty() { String::new() } else { format!(" ({mode})") };
    format!("{driver}{interface}{mode}")
}
