//! Settings of a port that is switched to another driver.

use super::{Plan, PortPlan};
use crate::Error;
use crate::config::raw::Driver;

/// Refusal of a driver that opens no port while the lanes run.
pub(crate) const CLOSED_DRIVERS: &str = "this driver can only be opened at the start; use af-xdp, \
                                         af-packet, dpdk or memif, or restart the application";

/// Returns the refusal of a driver for a port whose rules nobody would match.
pub(crate) fn unmatched_rules(driver: &Driver) -> String {
    format!(
        "its `steer` list is matched in Linux, and its lanes do not match it for {}; empty the \
         list, or start the application on that driver",
        driver.name()
    )
}

impl Driver {
    /// Returns the interface, the device without its arguments, or the socket of a driver that
    /// opens ports while the lanes run.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::AfXdp(xdp) => Some(&xdp.interface),
            Self::AfPacket(packet) => Some(&packet.interface),
            Self::Memif(memif) => Some(&memif.socket),
            Self::Dpdk(dpdk) => dpdk.device.as_ref().or(dpdk.vdev.as_ref())?.split(',').next(),
            _ => None,
        }
    }

    /// Returns the name of the driver, with the interface if Linux keeps it.
    pub(crate) fn with_interface(&self) -> String {
        let interface = self.device().filter(|_| self.is_shared());
        interface.map_or_else(|| self.name().to_owned(), |it| format!("{} on {it}", self.name()))
    }
}

impl Plan {
    /// Resolves the settings of a port with another driver, beside the `current` ones of all ports.
    /// Settings that only its present driver has are left out.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub(crate) fn with_driver<'p>(
        &self,
        port: usize,
        driver: Driver,
        current: impl Iterator<Item = &'p PortPlan>,
    ) -> Result<PortPlan, Error> {
        let mut raw = self.raw.clone();
        for plan in current {
            let Some(settings) = raw.ports.get_mut(&plan.name) else { continue };
            settings.driver = plan.driver.clone();
            if usize::from(plan.id.0) == port {
                settings.driver = driver.clone();
            }
            settings.kernel = None; // the path into Linux stays
            settings.switch = None; // the policy is that of the start
            if !settings.driver.is_shared() && !matches!(settings.driver, Driver::Dpdk(_)) {
                (settings.on_removal, settings.reopen_within_s) = (None, None);
            }
        }
        let mut ports = Self::new(raw, &self.source.program)?.ports;
        Ok(ports.swap_remove(port))
    }

    /// Checks that the lanes can have the present driver of a port and another one at once, and
    /// that the new one can do what the port was started for. The rules of all ports, and those of
    /// `now`, are the ones in force.
    ///
    /// # Errors
    /// The reason why the port cannot change.
    pub(crate) fn check_change(
        &self,
        at_start: &PortPlan,
        before: &PortPlan,
        now: &PortPlan,
    ) -> Result<(), String> {
        let (from, to) = (&before.driver, &now.driver);
        if from.device().is_none() || to.device().is_none() {
            return Err(CLOSED_DRIVERS.to_owned());
        }
        let kinds = std::mem::discriminant(from) == std::mem::discriminant(to);
        if kinds && from.device() == to.device() {
            return Err(format!(
                "it is on {} already, and two of its sockets cannot share the queues; switch it to \
                 another driver first, then back with the new settings",
                from.with_interface()
            ));
        }
        let is_shared = at_start.driver.is_shared();
        if !now.rules.is_empty() && is_shared && !to.is_shared() {
            return Err(unmatched_rules(to));
        }
        if before.lanes != now.lanes || before.lane_by != now.lane_by {
            let reason = "it would have other lanes; name them with `lanes`, and restart";
            return Err(reason.to_owned());
        }
        if is_shared != to.is_shared() && self.steers_vlans(at_start) {
            return Err(format!(
                "it carries VLANs, and its `steer` list and theirs are matched {}; empty the \
                 lists, or start the application on that driver",
                if is_shared { "in Linux" } else { "by its lanes" }
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_removal_does_stays_where_the_driver_knows_it() {
        let wire = json!({"driver": {"af-xdp": {"interface": "a"}}, "on-removal": "exit"});
        let raw = serde_json::from_value(json!({"ports": {"wire": wire}})).unwrap();
        let plan = Plan::new(raw, "test").unwrap();
        let with = |driver| {
            let driver = serde_json::from_value(driver).unwrap();
            plan.with_driver(0, driver, plan.ports.iter()).unwrap()
        };
        assert_eq!(with(json!({"af-packet": {"interface": "a"}})).reopen_within, None);
        with(json!({"memif": {"socket": "@a", "role": "client"}})); // it is not refused
    }
}
