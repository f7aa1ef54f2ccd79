//! View of the readiness for new sessions, for load balancers and orchestrators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::metrics::Snapshot;

/// Readiness for new sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// Sessions are accepted.
    Ready,
    /// No control plane function is associated, or none of them responds.
    NoAssociation,
    /// All sessions are in use, or establishments were refused as congestion in the last 10 s.
    Overloaded,
    /// New sessions and associations are refused: see `/drain`.
    Draining,
    /// The fast path process does not run; its supervisor restarts it.
    NoFastPath,
}

/// Readiness with the numbers that it follows from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HealthView {
    /// The most severe state.
    pub state: Readiness,
    /// Number of associations whose control plane function responds.
    pub associations: usize,
    /// Number of sessions.
    pub sessions: usize,
    /// Maximum number of sessions.
    pub most_sessions: usize,
}

impl HealthView {
    pub(in crate::api) fn of(numbers: &Snapshot) -> Self {
        let [associations, _] = numbers.associations;
        let (sessions, most_sessions) = (numbers.sessions, numbers.capacity);
        let state = match () {
            () if !numbers.is_fast_alive => Readiness::NoFastPath,
            () if numbers.drain.is_draining => Readiness::Draining,
            () if numbers.is_congested || sessions >= most_sessions => Readiness::Overloaded,
            () if associations == 0 => Readiness::NoAssociation,
            () => Readiness::Ready,
        };
        Self { state, associations, sessions, most_sessions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_state_counts() {
        let mut numbers = Snapshot { capacity: 10, ..Snapshot::default() };
        let mut states = Vec::new();
        let mut note = |numbers: &Snapshot| states.push(HealthView::of(numbers).state);
        numbers.is_fast_alive = true;
        note(&numbers);
        numbers.associations = [1, 1];
        note(&numbers);
        numbers.sessions = 10;
        note(&numbers);
        (numbers.sessions, numbers.is_congested) = (9, true);
        note(&numbers);
        numbers.drain.is_draining = true;
        note(&numbers);
        numbers.is_fast_alive = false;
        note(&numbers);
        assert_eq!(
            states,
            [
                Readiness::NoAssociation,
                Readiness::Ready,
                Readiness::Overloaded,
                Readiness::Overloaded,
                Readiness::Draining,
                Readiness::NoFastPath
            ]
        );
    }
}
