//! What a running application is: plain facts, as the session and the metrics hand them out.

use serde::{Deserialize, Serialize};

/// A running application. Its lanes and ports are in the order of their counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Application {
    /// The name under which its session is found.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The id of its process, as that process itself sees it.
    pub pid: u32,
    /// One entry for each lane.
    pub lanes: Vec<LaneFacts>,
    /// One entry for each port.
    pub ports: Vec<PortFacts>,
}

/// What is fixed about a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LaneFacts {
    /// The CPU that the lane is pinned to, if it is.
    pub cpu: Option<usize>,
    /// Its idle policy, as the configuration names it.
    pub idle: String,
}

/// What is fixed about a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PortFacts {
    /// The name in the configuration.
    pub name: String,
    /// The mechanism, as the configuration names it: `af-xdp`, `tap`, ...
    pub driver: String,
    /// What the mechanism chose, such as `native copy`; empty when there is nothing to choose.
    pub mode: String,
    /// The network interface, when there is one.
    pub interface: Option<String>,
    /// How many queues the lanes share among them.
    pub queues: usize,
    /// How packets labelled `Kernel` get into Linux; `None` when they are dropped.
    pub kernel: Option<String>,
}
