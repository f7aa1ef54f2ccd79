//! TAP devices of ports that somebody removes while the application runs: ports themselves, kernel
//! peers and the way of re-entry.
//!
//! Their queues would receive and send nothing for ever, and running lanes cannot get others. So
//! the run ends, and the next one creates them.

use std::time::{Duration, Instant};

use fastlane_table::counters::DownReason;

use super::{MonitoredPort, Surroundings, lock};
use crate::Error;
use crate::config::raw::Driver;

/// Interval between two looks. Link events do not tell: a device that has moved to another network
/// namespace works, and an application may be in another one than its ports.
const INTERVAL: Duration = Duration::from_millis(100);

/// Periodic look at the TAP devices of an application.
#[derive(Debug)]
pub(super) struct TapDevices {
    /// Time of the next look.
    due: Instant,
}

impl TapDevices {
    /// Begins with a look at once.
    pub(super) fn new() -> Self {
        Self { due: Instant::now() }
    }

    /// Looks at the TAP devices if that is due.
    ///
    /// # Errors
    /// Returns an error if one was removed.
    pub(super) fn check(
        &mut self,
        around: Surroundings<'_>,
        ports: &[MonitoredPort],
    ) -> Result<(), Error> {
        let now = Instant::now();
        if now < self.due {
            return Ok(());
        }
        self.due = now + INTERVAL;
        let Some((number, tap)) = lock(around.devices).removed_tap() else { return Ok(()) };
        let Some(port) = ports.iter().find(|port| port.number == number) else { return Ok(()) };
        let role = match &port.plan.driver {
            Driver::Tap(_) => "the TAP device",
            _ => "the TAP device of its path into Linux,",
        };
        around.counters.set_down_reason(number, Some(DownReason::Removed));
        Err(Error::Run(format!(
            "port `{}`: {role} {tap} was removed; start the application again, which creates it",
            port.plan.name
        )))
    }
}
