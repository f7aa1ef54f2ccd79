//! Raw settings of a port that has another driver under load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Driver;

/// Driver of a port under load, and the load that selects it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SwitchPolicy {
    /// Driver under load. The port starts with its `driver` and returns to it.
    pub to: Driver,
    /// Load at which the port changes its driver.
    pub when: LoadBounds,
}

/// Bounds of the load of a port, and the times for which the load must be beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadBounds {
    /// Measure of the load.
    pub load: Load,
    /// The port changes to the driver `to` when its load stays above this.
    pub above: u32,
    /// The port returns to its `driver` when its load stays below this, which is less than `above`.
    pub below: u32,
    /// Time above the bound before the change, in seconds, 1 to 86400.
    #[serde(default = "above_s")]
    pub above_s: u32,
    /// Time below the bound before the return, in seconds, 1 to 86400. After a return that did not
    /// last it doubles, up to 64 times.
    #[serde(default = "below_s")]
    pub below_s: u32,
}

/// Measures of the load of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Packets that the port receives in a second.
    PacketsPerSecond,
    /// CPU time of the busiest lane of the port, in percent of a CPU. It differs between drivers:
    /// `below` must be less than the load that is left after the change.
    CpuPercent,
}

fn above_s() -> u32 {
    2
}

fn below_s() -> u32 {
    30
}
