//! Description of a running application, as returned by the session and the metrics.

use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

/// Description of a running application. Lanes and ports are in the order of their counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Application {
    /// Name of the application and its session.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process ID in the PID namespace of the application.
    pub pid: u32,
    /// The lanes.
    pub lanes: Vec<LaneFacts>,
    /// The ports.
    pub ports: Vec<PortFacts>,
}

/// Description of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LaneFacts {
    /// CPU that the lane is pinned to; `None` if it is not pinned.
    pub cpu: Option<usize>,
    /// Idle policy, as in the configuration.
    pub idle: String,
}

/// Description of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PortFacts {
    /// Name in the configuration.
    pub name: String,
    /// Driver, as in the configuration: `af-xdp`, `tap`, ...
    pub driver: String,
    /// Mode selected by the driver, such as `native copy`; empty if it has no modes.
    pub mode: String,
    /// Network interface, if there is one.
    pub interface: Option<String>,
    /// Number of queues over all lanes.
    pub queues: usize,
    /// Path of packets labelled `Kernel` into Linux; `None` if they are dropped.
    pub kernel: Option<String>,
    /// Number of times that the port was switched to another driver.
    #[serde(default)]
    pub switches: u64,
}

/// Description of this application, as it is at present.
#[derive(Clone, Debug)]
pub(crate) struct Description(Arc<RwLock<Arc<Application>>>);

impl Description {
    /// Creates the description at the start.
    pub(crate) fn new(application: Application) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(application))))
    }

    /// Returns the present description.
    pub(crate) fn get(&self) -> Arc<Application> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the description of a port.
    pub(crate) fn change_port(&self, port: usize, change: impl FnOnce(&mut PortFacts)) {
        let mut application = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = Arc::make_mut(&mut application).ports.get_mut(port) {
            change(port);
        }
    }
}
