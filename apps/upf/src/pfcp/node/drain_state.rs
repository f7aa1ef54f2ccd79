//! State of a drain, as stored in the node record.

/// State of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DrainState {
    /// The process ends after the drain.
    pub(super) is_exit: bool,
    /// End of the release period, in nanoseconds of `CLOCK_MONOTONIC`; `u64::MAX` without one.
    pub(super) until: u64,
}

/// Values of `NodeRecord::drain`.
const NONE: u32 = 0;
const DRAIN: u32 = 1;
const EXIT: u32 = 2;

impl DrainState {
    /// Returns the state with these values of a node record: its kind and its end.
    pub(super) const fn read(kind: u32, until: u64) -> Option<Self> {
        match kind {
            NONE => None,
            kind => Some(Self { is_exit: kind == EXIT, until }),
        }
    }

    /// Returns the values of a state for a node record.
    pub(super) const fn values(state: Option<Self>) -> (u32, u64) {
        match state {
            None => (NONE, 0),
            Some(Self { is_exit: true, until }) => (EXIT, until),
            Some(Self { until, .. }) => (DRAIN, until),
        }
    }
}
