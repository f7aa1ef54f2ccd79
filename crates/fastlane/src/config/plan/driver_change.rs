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
            // The path into Linux stays; a removal has the default.
            settings.kernel = None;
            (settings.on_removal, settings.reopen_within_s) = (None, None);
        }
        let mut ports = Self::new(raw, &self.source.program)?.ports;
        Ok(ports.swap_remove(port))
    }
}
