//! Bodies of requests and replies, as JSON.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::raw::Driver;
use crate::config::rules::Rule;
use crate::tables::TableFacts;

/// Reply to `tables` and `write`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TableList {
    pub(crate) tables: Vec<TableFacts>,
}

/// Request for write access to tables.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Write {
    pub(crate) tables: Vec<String>,
}

/// Request to replace the steering rules of a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct NewRules {
    pub(crate) port: String,
    pub(crate) rules: Vec<Rule>,
}

/// Request to apply the `steer` lists of a configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Reload {
    /// File name and text; `None` for the file with which the application was started.
    pub(crate) file: Option<(String, String)>,
}

/// Steering rules of a port before and after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReplacedRules {
    /// Name of the port.
    pub port: String,
    /// Previous rules.
    pub before: Vec<Rule>,
    /// Current rules.
    pub now: Vec<Rule>,
}

/// Reply to `rules` and `reload`: the ports whose rules have changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Changes {
    pub(crate) ports: Vec<ReplacedRules>,
}

/// Longest wait of a client for the end of a switch.
pub(crate) const SWITCH_PATIENCE: Duration = Duration::from_secs(30);

/// Request to switch a port to another driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Switch {
    /// Name of the port.
    pub(crate) port: String,
    pub(crate) driver: Driver,
}

/// Report of a port that was switched to another driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SwitchReport {
    /// Driver and mode before.
    pub before: String,
    /// Driver and mode now.
    pub now: String,
    /// Packets of the port that were lost meanwhile, by its counters.
    pub lost: u64,
    /// Time in seconds in which the port neither sent nor received.
    pub silent_seconds: f64,
    /// Time in seconds from the request to the end.
    pub seconds: f64,
}

/// Reply to `messages`. Its descriptors are the rings, the slow path's doorbell, and the doorbell
/// of each lane.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct MessageRingList {
    pub(crate) lanes: usize,
}

/// Request to move a shard, or to list all shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Shards {
    /// Shard to move and its new lane; `None` moves nothing.
    pub(crate) moved: Option<(u8, usize)>,
}

/// Assignment of shards to lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ShardList {
    /// Lane of each of the 256 shards.
    pub lanes: Vec<usize>,
    /// Packets of each shard since the start.
    pub packets: Vec<u64>,
}

/// Request of a holder to an application, and of a successor to a holder.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct HandoverRequest {
    /// Index of the first descriptor of the reply.
    pub(crate) from: usize,
    /// True if the successor cannot use the handover, so the holder closes it.
    #[serde(default)]
    pub(crate) give_up: bool,
    /// True if the application replaces a port, so the holder closes the ports.
    #[serde(default)]
    pub(crate) withdraws_ports: bool,
}

impl HandoverRequest {
    /// Creates a request for the descriptors from number `from` on.
    pub(crate) fn from(from: usize) -> Self {
        Self { from, give_up: false, withdraws_ports: false }
    }

    /// Creates a request to close everything.
    pub(crate) fn give_up() -> Self {
        Self { give_up: true, ..Self::from(0) }
    }

    /// Creates a request to close the ports.
    pub(crate) fn withdraw_ports() -> Self {
        Self { withdraws_ports: true, ..Self::from(usize::MAX) }
    }
}

/// Parses the body of a request.
pub(crate) fn read_request<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        format!("the request cannot be read ({error}); install both programs from one release")
    })
}
