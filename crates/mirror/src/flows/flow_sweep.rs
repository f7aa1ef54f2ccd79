//! Sweep over the flows: Linux does not see their packets, so the follower keeps their timeouts.

use std::fs;

use super::flow_table::TrackedFlow;
use crate::conntrack::{ConntrackChange, Status};

/// Timeouts of connections that are in use, in seconds (`net.netfilter.nf_conntrack_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTimeouts {
    /// Timeout of established TCP, `tcp_timeout_established`.
    pub tcp: u32,
    /// Timeout of UDP with packets in one direction, `udp_timeout`.
    pub udp: u32,
    /// Timeout of UDP with packets in both directions, `udp_timeout_stream`.
    pub udp_stream: u32,
}

impl Default for FlowTimeouts {
    /// Returns the defaults of Linux.
    fn default() -> Self {
        Self { tcp: 432_000, udp: 30, udp_stream: 120 }
    }
}

impl FlowTimeouts {
    /// Reads the timeouts of the network namespace of the calling thread; those that cannot be read
    /// have the default of Linux.
    #[must_use]
    pub fn read() -> Self {
        let default = Self::default();
        let read = |name: &str, default| {
            let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().parse().unwrap_or(default)
        };
        Self {
            tcp: read("tcp_timeout_established", default.tcp),
            udp: read("udp_timeout", default.udp),
            udp_stream: read("udp_timeout_stream", default.udp_stream),
        }
    }

    /// Returns the shortest timeout.
    pub(super) fn shortest(&self) -> u32 {
        self.tcp.min(self.udp).min(self.udp_stream)
    }

    /// Returns the timeout of a flow from its last packet on. A longer one that Linux has reported,
    /// by a timeout policy, counts.
    fn of(&self, flow: &TrackedFlow) -> u32 {
        let own = if i32::from(flow.keys[0].protocol) == libc::IPPROTO_TCP {
            self.tcp
        } else if flow.status.has(Status::SEEN_REPLY) {
            self.udp_stream
        } else {
            self.udp
        };
        own.max(flow.longest)
    }

    /// Returns the change that Linux needs to know that a flow is in use, if it needs any. `totals`
    /// are the bytes of both directions and the time of the last packet, in nanoseconds.
    pub(super) fn refresh(
        &self,
        flow: &mut TrackedFlow,
        totals: [u64; 2],
        now: u64,
    ) -> Option<ConntrackChange> {
        const SECOND: u64 = 1_000_000_000;
        let [octets, last_seen] = totals;
        let mut change = flow.change();
        change.be_liberal = flow.must_be_liberal(octets);
        if change.be_liberal {
            flow.liberal_at = octets;
        }
        let full = u64::from(self.of(flow));
        let expiry = flow.reported + u64::from(flow.timeout) * SECOND;
        // Half of the time is left: that is often enough, and Linux is not told of each packet.
        if last_seen > flow.reported && expiry < now + full * SECOND / 2 {
            let idle = now.saturating_sub(last_seen) / SECOND;
            let timeout = full.saturating_sub(idle).max(1) as u32;
            change.timeout = Some(timeout);
            (flow.timeout, flow.reported) = (timeout, now);
            // Linux marks UDP as assured once it has lasted, so that it is not removed early.
            if flow.status.has(Status::SEEN_REPLY) && !flow.status.has(Status::ASSURED) {
                flow.status.0 |= Status::ASSURED;
                change.status = Some(flow.status.0);
            }
        }
        (change.be_liberal || change.timeout.is_some()).then_some(change)
    }
}
