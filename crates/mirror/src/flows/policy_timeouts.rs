//! Timeouts of timeout policies, which Linux reports before the connections are flows.

use std::collections::HashMap;

/// Timeouts by policies of connections that are not flows yet.
#[derive(Debug)]
pub(super) struct PolicyTimeouts {
    /// Timeouts in seconds by the number of the connection.
    pending: HashMap<u32, u32>,
    capacity: usize,
    /// Shortest timeout so far.
    shortest: u32,
}

impl PolicyTimeouts {
    /// Creates an empty set for up to `capacity` connections.
    pub(super) fn new(capacity: usize) -> Self {
        Self { pending: HashMap::new(), capacity, shortest: u32::MAX }
    }

    /// Notes that a policy has set a timeout: flows must be visited often enough for it.
    pub(super) fn note(&mut self, timeout: u32) {
        self.shortest = self.shortest.min(timeout);
    }

    /// Keeps the timeout of a connection until it becomes a flow. Connections that never do are
    /// forgotten when the set is full.
    pub(super) fn keep(&mut self, id: u32, timeout: u32) {
        if self.pending.len() >= self.capacity {
            self.pending.clear();
        }
        self.pending.insert(id, timeout);
    }

    /// Returns the timeout of a connection that becomes a flow, if a policy has set it.
    pub(super) fn take(&mut self, id: u32) -> Option<u32> {
        self.pending.remove(&id)
    }

    /// Returns the shortest timeout that was noted, or the maximum.
    pub(super) fn shortest(&self) -> u32 {
        self.shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_kept_once_and_in_bounds() {
        let mut timeouts = PolicyTimeouts::new(2);
        timeouts.note(600);
        timeouts.note(20);
        timeouts.note(40);
        assert_eq!(timeouts.shortest(), 20);
        timeouts.keep(1, 600);
        timeouts.keep(2, 20);
        assert_eq!((timeouts.take(1), timeouts.take(1)), (Some(600), None));
        timeouts.keep(3, 30);
        timeouts.keep(4, 40);
        assert_eq!((timeouts.take(2), timeouts.take(4)), (None, Some(40)));
    }
}
