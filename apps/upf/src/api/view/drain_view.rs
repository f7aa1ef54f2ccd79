//! View of a drain.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::pfcp::node::DrainStatus;

const SECOND: u64 = 1_000_000_000;

/// State of the withdrawal from service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DrainStage {
    /// Sessions and associations are accepted.
    Serving,
    /// New sessions and associations are refused.
    Draining,
    /// The same, and the process ends afterwards.
    Exiting,
}

/// A drain: new sessions are refused, and associations are to be released.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DrainView {
    /// State of service.
    pub state: DrainStage,
    /// True if all associations are released.
    pub is_drained: bool,
    /// Number of associations that are not released.
    pub associations: usize,
    /// Number of sessions.
    pub sessions: usize,
    /// Rest of the release period in seconds; null without one.
    pub period_left_s: Option<u64>,
}

impl From<DrainStatus> for DrainView {
    fn from(status: DrainStatus) -> Self {
        let state = match status {
            DrainStatus { is_exiting: true, .. } => DrainStage::Exiting,
            DrainStatus { is_draining: true, .. } => DrainStage::Draining,
            _ => DrainStage::Serving,
        };
        Self {
            state,
            is_drained: status.is_drained,
            associations: status.associations,
            sessions: status.sessions,
            period_left_s: status.left.map(|left| left.div_ceil(SECOND)),
        }
    }
}
