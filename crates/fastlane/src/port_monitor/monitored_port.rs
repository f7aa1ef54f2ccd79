//! A port with its interface or device, and the progress of its replacement.

use std::time::Instant;

use fastlane_core::DetachedQueue;
use fastlane_kernel::Interface;

use super::switch_stage::PortSwitch;
use crate::config::plan::PortPlan;
use crate::config::raw::Driver;
use crate::open::ReopenedDevice;

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
    /// Queues that lanes have given up, with the index of the lane.
    pub(super) detached: Vec<(usize, DetachedQueue)>,
    /// Last reason why it could not be reopened.
    pub(super) refusal: Option<String>,
    /// Reason why its path into Linux has not followed the interface yet.
    pub(super) unfollowed: Option<String>,
    /// Claimed frames on queues that no lane covers, as of the last look.
    pub(super) uncovered: u64,
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

impl MonitoredPort {
    /// Creates the state of an open port, with its interface in Linux if it has one.
    pub(super) fn new(plan: PortPlan, interface: Option<Interface>) -> Self {
        let now = Instant::now();
        Self {
            number: usize::from(plan.id.0),
            plan,
            interface,
            phase: Phase::Open,
            since: now,
            retry: now,
            is_due: true, // a change since the port was opened
            is_removed: false,
            detached: Vec::new(),
            refusal: None,
            unfollowed: None,
            uncovered: 0,
        }
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
