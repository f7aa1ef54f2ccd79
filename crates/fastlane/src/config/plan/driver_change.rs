//! Settings of a port that is switched to another driver.

use super::{Plan, PortPlan};
use crate::Error;
use crate::config::raw::Driver;

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
            if !settings.driver.is_shared() && !matches!(settings.driver, Driver::Dpdk(_)) {
                (settings.on_removal, settings.reopen_within_s) = (None, None);
            }
        }
        let mut ports = Self::new(raw, &self.source.program)?.ports;
        Ok(ports.swap_remove(port))
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
