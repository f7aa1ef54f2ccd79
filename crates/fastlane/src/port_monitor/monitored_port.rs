//! A port with its interface or device, and the progress of its replacement.

use std::time::Instant;

use fastlane_core::DetachedQueue;
use fastlane_kernel::{Interface, LinkEvent};
use fastlane_table::counters::DownReason;

use super::Surroundings;
use super::switch_stage::{PortSwitch, Stage};
use crate::config::plan::{Plan, PortPlan};
use crate::config::raw::Driver;
use crate::open::{ReopenedDevice, warn_of_missing_queues};

/// Interface or device of a port and the progress of its replacement.
pub(super) struct MonitoredPort {
    pub(super) number: usize,
    /// Settings, with the driver that it has at present.
    pub(super) plan: PortPlan,
    /// Interface in Linux, if it has one.
    pub(super) interface: Option<Interface>,
    pub(super) phase: Phase,
    /// Begin of the replacement.
    pub(super) since: Instant,
    /// Next attempt to reopen it.
    pub(super) retry: Instant,
    /// True if the interface may have changed.
    pub(super) is_due: bool,
    /// True if the interface or the device no longer exists.
    pub(super) is_removed: bool,
    /// Indices of its interfaces that were removed since it was opened. Another one may have the
    /// index now.
    pub(super) removed: Vec<u32>,
    /// Queues that lanes have given up, with the index of the lane.
    pub(super) detached: Vec<(usize, DetachedQueue)>,
    /// Last reason why it could not be reopened.
    pub(super) refusal: Option<String>,
    /// Reason why its path into Linux has not followed the interface yet.
    pub(super) unfollowed: Option<String>,
    /// Claimed frames on queues that no lane covers, as of the last look.
    pub(super) uncovered: u64,
    /// Number of queues with which all lanes can send through it. Lanes that pass packets to each
    /// other need those of the start.
    pub(super) needed_queues: usize,
}

/// Phase of a port.
pub(super) enum Phase {
    /// The lanes have its queues.
    Open,
    /// The lanes are giving up its queues.
    Detaching,
    /// The port is closed until it can be reopened.
    Closed,
    /// The lanes are receiving its new queues.
    Installing(Box<ReopenedDevice>),
    /// It is switched to another driver.
    Switching(Box<PortSwitch>),
}

impl Phase {
    /// Returns the device that was opened for the port, and is not among those of the application
    /// yet.
    pub(super) fn next_device(&mut self) -> Option<&mut ReopenedDevice> {
        match self {
            Self::Installing(device) => Some(device),
            Self::Switching(switch) => match &mut switch.stage {
                Stage::Connecting(opened) | Stage::Rejoining(opened, _) => Some(&mut opened.device),
                Stage::Joining(device) => Some(device),
                _ => None,
            },
            Self::Open | Self::Detaching | Self::Closed => None,
        }
    }
}

impl MonitoredPort {
    /// Creates the state of an open port, with its interface in Linux if it has one.
    pub(super) fn new(
        plan: PortPlan,
        interface: Option<Interface>,
        around: Surroundings<'_>,
    ) -> Self {
        let now = Instant::now();
        let needed_queues = needed_queues(around, &plan);
        Self {
            number: usize::from(plan.id.0),
            plan,
            interface,
            phase: Phase::Open,
            since: now,
            retry: now,
            is_due: true, // a change since the port was opened
            is_removed: false,
            removed: Vec::new(),
            detached: Vec::new(),
            refusal: None,
            unfollowed: None,
            uncovered: 0,
            needed_queues,
        }
    }
}

impl MonitoredPort {
    /// Notes an event of an interface that may be that of the port.
    pub(super) fn note(&mut self, event: &LinkEvent) {
        let switched = match &self.phase {
            Phase::Switching(switch) => switch.interface.as_ref(),
            _ => None,
        };
        let mut mine = self.interface.iter().chain(switched);
        let is_mine = mine.any(|interface| interface.index == event.index);
        self.is_due |= is_mine || configured_name(&self.plan) == Some(&*event.name);
        if is_mine && event.is_removed {
            self.removed.push(event.index);
        }
    }

    /// Returns what was removed, how it is brought back, and its state then.
    pub(super) fn removal(&self) -> (String, &'static str, &'static str) {
        match &self.interface {
            Some(interface) => (format!("interface {}", interface.name), "create", "back and up"),
            None => (format!("device {}", device(&self.plan)), "attach", "back"),
        }
    }

    /// Reports that the port is open again. `queues` is the number of its queues, if there may be
    /// fewer than lanes.
    pub(super) fn report_return(&self, around: Surroundings<'_>, queues: Option<usize>) {
        let Self { plan, interface, number, .. } = self;
        let down = interface.as_ref().and_then(down_reason);
        around.counters.set_down_reason(*number, down);
        let name = interface.as_ref().map_or_else(|| device(plan), |it| &it.name);
        let seconds = self.since.elapsed().as_secs_f64();
        tracing::info!("port `{}`: reopened on {name} after {seconds:.3} s", plan.name);
        if let Some(queues) = queues {
            around.description.change_port(*number, |facts| facts.queues = queues);
            warn_of_missing_queues(plan, queues, self.needed_queues);
        }
    }

    /// Returns true if the interface was removed since the port was opened.
    pub(super) fn was_removed(&self) -> bool {
        let index = self.interface.as_ref().map(|interface| interface.index);
        index.is_some_and(|index| self.removed.contains(&index))
    }
}

/// Returns the name of the interface in the configuration of a port.
pub(super) fn configured_name(plan: &PortPlan) -> Option<&str> {
    match &plan.driver {
        Driver::AfXdp(xdp) => Some(&xdp.interface),
        Driver::AfPacket(packet) => Some(&packet.interface),
        _ => None,
    }
}

/// Returns the number of queues with which all lanes of a port can send through it.
fn needed_queues(around: Surroundings<'_>, port: &PortPlan) -> usize {
    let description = around.description.get();
    let at_start = description.ports.get(usize::from(port.id.0)).map_or(0, |it| it.queues);
    let lanes = port.lanes.len();
    if around.plan.ring.is_some() { at_start.min(lanes) } else { lanes }
}

/// Returns the reason why a port on this interface receives and sends nothing, if there is one.
pub(super) fn down_reason(interface: &Interface) -> Option<DownReason> {
    (!interface.carrier).then_some(DownReason::LinkDown)
}

/// Returns the number of AF_XDP queues of these ports that each of `lanes` lanes has.
pub(super) fn xdp_queues<'a>(
    ports: impl IntoIterator<Item = &'a MonitoredPort>,
    lanes: usize,
) -> Vec<usize> {
    let mut counts = vec![0; lanes];
    for MonitoredPort { plan, interface, .. } in ports {
        if matches!(plan.driver, Driver::AfXdp(_)) {
            let queues = interface.as_ref().map_or(0, |it| it.receive_queues as usize);
            (0..queues).for_each(|queue| counts[Plan::lane_of(plan, queue)] += 1);
        }
    }
    counts
}

/// Logs the changes of an interface that matter to its port.
pub(super) fn report_changes(plan: &PortPlan, before: &Interface, now: &Interface) {
    let (port, name) = (&plan.name, &now.name);
    if before.name != now.name {
        let before = &before.name;
        tracing::warn!(
            "port `{port}`: {before} was renamed to {name}; after a removal the port is reopened \
             on an interface called {before}"
        );
    }
    if before.up != now.up {
        let state = if now.up { "up" } else { "down" };
        tracing::info!("port `{port}`: {name} is {state}");
    } else if before.carrier != now.carrier {
        let state = if now.carrier { "its carrier again" } else { "lost its carrier" };
        tracing::info!("port `{port}`: {name} has {state}");
    }
    if before.mtu != now.mtu {
        tracing::info!("port `{port}`: {name} has an MTU of {} instead of {}", now.mtu, before.mtu);
    }
    if before.mac != now.mac {
        let mac = fastlane_wire::MacAddress(now.mac);
        tracing::info!("port `{port}`: {name} has the Ethernet address {mac}");
    }
}

/// Returns the interface, the device or the socket of a port.
pub(super) fn device(plan: &PortPlan) -> &str {
    plan.driver.device().unwrap_or(&plan.name)
}
