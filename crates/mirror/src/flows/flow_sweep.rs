//! Sweep over the flows: Linux does not see their packets, so the follower keeps their timeouts.

use std::fs;

use super::TierTotals;
use super::flow_table::{SECOND, TrackedFlow};
use crate::conntrack::{Connection, ConntrackChange, Status, TcpFlags, TcpProgress, TcpState};

/// Time after which Linux marks UDP with packets in both directions as assured by its next packet,
/// Maximum time by which a refresh may be late, in nanoseconds: a sweep, and the time for which
/// lanes go on without the slow path.
const REFRESH_DELAY: u64 = 20 * SECOND;
/// in nanoseconds (`nf_conntrack_udp_packet` in `net/netfilter/nf_conntrack_proto_udp.c`).
const ASSURED_AFTER: u64 = 2 * SECOND;

/// Timeouts of connections that are in use, in seconds (`net.netfilter.nf_conntrack_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTimeouts {
    /// Timeout of established TCP, `tcp_timeout_established`.
    pub tcp: u32,
    /// Timeout of UDP with packets in one direction, `udp_timeout`.
    pub udp: u32,
    /// Timeout of UDP with packets in both directions, `udp_timeout_stream`.
    pub udp_stream: u32,
    /// Timeout of established TCP after a zero window or many repeated segments,
    /// `tcp_timeout_max_retrans`.
    pub tcp_retransmitted: u32,
}

impl Default for FlowTimeouts {
    /// Returns the defaults of Linux.
    fn default() -> Self {
        Self { tcp: 432_000, udp: 30, udp_stream: 120, tcp_retransmitted: 300 }
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
            tcp_retransmitted: read("tcp_timeout_max_retrans", default.tcp_retransmitted),
        }
    }

    /// Returns the shortest timeout.
    pub(super) fn shortest(&self) -> u32 {
        self.tcp.min(self.udp).min(self.udp_stream)
    }

    /// Returns the timeout of a flow with a status from its last packet on, in nanoseconds.
    fn of(&self, flow: &TrackedFlow, status: Status) -> u64 {
        let usual = || self.usual(flow.keys[0].protocol, status);
        u64::from(flow.policy_timeout.unwrap_or_else(usual)) * SECOND
    }

    /// Returns the timeout of a connection without a timeout policy.
    fn usual(&self, protocol: u8, status: Status) -> u32 {
        if i32::from(protocol) == libc::IPPROTO_TCP {
            self.tcp
        } else if status.has(Status::ASSURED) {
            self.udp_stream
        } else {
            self.udp // also with packets in both directions, until it has lasted
        }
    }

    /// Returns the timeout of a reported connection if a timeout policy must have set it: a longer
    /// one than usual, or a shorter one just after a packet, where nothing else explains it. Linux
    /// does not report the policy itself. Without an answer the usual timeout holds, as one that is
    /// too short would end an idle connection early.
    pub(super) fn by_policy(&self, connection: &Connection) -> Option<u32> {
        let timeout = connection.timeout?;
        let mut status = connection.status;
        if status.has(Status::SEEN_REPLY) {
            status.0 |= Status::ASSURED; // soon, and with a longer timeout
        }
        let usual = self.usual(connection.original.protocol, status);
        if timeout > usual {
            return Some(timeout);
        }
        let is_settled = |tcp: TcpProgress| {
            let waits = tcp.flags.iter().any(|it| it.0 & TcpFlags::DATA_UNACKNOWLEDGED != 0);
            tcp.state == TcpState::ESTABLISHED && !waits
        };
        let explained = match i32::from(connection.original.protocol) {
            libc::IPPROTO_TCP if connection.tcp.is_some_and(is_settled) => self.tcp_retransmitted,
            libc::IPPROTO_TCP => return None,
            _ => self.udp, // until the connection has lasted for two seconds
        };
        // Linux rounds down.
        let is = |other: u32| other == timeout || other == timeout.saturating_add(1);
        let is_whole = connection.is_refreshed && connection.status.has(Status::ASSURED);
        (is_whole && !is(usual) && !is(explained)).then_some(timeout)
    }

    /// Returns the change that Linux needs to know that a flow is in use, if it needs any. `totals`
    /// are those of both directions in all tiers.
    pub(super) fn refresh(
        &self,
        flow: &mut TrackedFlow,
        totals: TierTotals,
        now: u64,
    ) -> Option<ConntrackChange> {
        let TierTotals { octets, last_seen, .. } = totals;
        let mut change = flow.change();
        change.be_liberal = flow.must_be_liberal(octets);
        if change.be_liberal {
            flow.liberal_at = octets;
        }
        // Others are removed when the table of Linux is full.
        let is_unassured = flow.status.has(Status::SEEN_REPLY) && !flow.status.has(Status::ASSURED);
        let has_lasted = is_unassured && last_seen > flow.known_use + ASSURED_AFTER;
        let assured = if has_lasted { Status::ASSURED } else { 0 };
        let status = Status(flow.status.0 | assured);
        let mut full = self.of(flow, status);
        if is_unassured && !has_lasted {
            // A timeout policy that is not known yet may have a longer one.
            full = full.max(flow.expiry.saturating_sub(flow.known_use));
        }
        // Half of the time is left: that is often enough, and Linux is not told of each packet. Or
        // the timeout has been lowered, and a packet came since: Linux would have applied it.
        let is_due = flow.expiry < now + full / 2 || flow.expiry > last_seen + full || has_lasted;
        if last_seen > flow.known_use && is_due {
            let timeout = left(full, last_seen, now);
            change.timeout = Some(timeout);
            (flow.expiry, flow.known_use) = (now + u64::from(timeout) * SECOND, last_seen);
            if has_lasted {
                flow.status = status;
                change.status = Some(status.0);
            }
        }
        (change.be_liberal || change.timeout.is_some()).then_some(change)
    }

    /// Returns the timeout of a flow that leaves the table, if Linux does not know of its last
    /// packet: it would never learn of it. The timeout is longer than that of Linux.
    pub(super) fn last_timeout(
        &self,
        flow: &TrackedFlow,
        totals: TierTotals,
        now: u64,
    ) -> Option<u32> {
        let TierTotals { last_seen, is_closing, .. } = totals;
        let full = self.of(flow, flow.status);
        let is_longer = last_seen > flow.known_use && last_seen + full > flow.expiry;
        // Linux has got a packet that closes the connection, and with it another timeout.
        (is_longer && !is_closing).then(|| left(full, last_seen, now))
    }

    /// Returns the time of the last packet that Linux knows of, as the timeout of a flow says. It
    /// may be up to a second too early, as Linux rounds down. `last_seen` is that of the last
    /// packet in all tiers.
    pub(super) fn last_known_use(&self, flow: &TrackedFlow, last_seen: u64, now: u64) -> u64 {
        let full = self.of(flow, flow.status);
        // A predecessor would have refreshed it: its timeout is a shorter one, by a policy.
        if flow.expiry + REFRESH_DELAY < last_seen + full / 2 {
            return now;
        }
        flow.expiry.saturating_sub(full).min(now)
    }
}

/// Returns what is left of a timeout in nanoseconds since the last packet, in seconds.
fn left(full: u64, last_seen: u64, now: u64) -> u32 {
    let idle = now.saturating_sub(last_seen) / SECOND;
    (full / SECOND).saturating_sub(idle).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::ConnectionTuple;
    use crate::flows::FlowKey;
    use crate::flows::flow_table::Closing;

    const REPLIED: u32 = Status::CONFIRMED | Status::SEEN_REPLY;
    const ASSURED: u32 = REPLIED | Status::ASSURED;

    fn connection(protocol: i32, status: u32, timeout: u32) -> Connection {
        let tuple = ConnectionTuple {
            source: [10, 0, 0, 2].into(),
            destination: [10, 0, 1, 2].into(),
            protocol: protocol as u8,
            ports: [4000, 80],
        };
        let tcp = TcpProgress { state: TcpState::ESTABLISHED, flags: [TcpFlags(0); 2] };
        Connection {
            id: 1,
            original: tuple,
            reply: tuple,
            zones: [0; 2],
            status: Status(status),
            mark: 1,
            timeout: Some(timeout),
            is_refreshed: true,
            tcp: (protocol == libc::IPPROTO_TCP).then_some(tcp),
            helper: String::new(),
            has_master: false,
            adjusts_sequence: false,
            counters: [None; 2],
        }
    }

    #[test]
    fn a_timeout_that_nothing_else_explains_is_that_of_a_policy() {
        let timeouts = FlowTimeouts::default();
        let of =
            |protocol, status, timeout| timeouts.by_policy(&connection(protocol, status, timeout));
        let (tcp, udp) = (libc::IPPROTO_TCP, libc::IPPROTO_UDP);
        assert_eq!(of(tcp, ASSURED, 600), Some(600));
        assert_eq!(of(tcp, ASSURED, 500_000), Some(500_000), "longer");
        assert_eq!(of(udp, ASSURED, 20), Some(20));
        // A second has begun; Linux waits for acknowledgements; UDP is new.
        for (protocol, status, timeout) in [
            (tcp, ASSURED, 432_000),
            (tcp, ASSURED, 431_999),
            (tcp, ASSURED, 300),
            (tcp, ASSURED, 299),
            (udp, ASSURED, 120),
            (udp, ASSURED, 29),
            (udp, REPLIED, 20),
        ] {
            assert_eq!(of(protocol, status, timeout), None, "{protocol} {timeout}");
        }
    }

    #[test]
    fn a_timeout_that_has_run_or_waits_for_an_acknowledgement_says_nothing() {
        let timeouts = FlowTimeouts::default();
        let mut it = connection(libc::IPPROTO_TCP, ASSURED, 600);
        it.is_refreshed = false;
        assert_eq!(timeouts.by_policy(&it), None, "of a dump or a change");
        it.is_refreshed = true;
        let tcp = it.tcp.as_mut().unwrap();
        tcp.flags[1] = TcpFlags(TcpFlags::DATA_UNACKNOWLEDGED);
        assert_eq!(timeouts.by_policy(&it), None);
        it.tcp = None;
        assert_eq!(timeouts.by_policy(&it), None, "the state is unknown");
        it.timeout = None;
        assert_eq!(timeouts.by_policy(&it), None);
    }

    /// Returns the flow of a connection that a packet renewed 100 seconds after the start of the
    /// clock.
    fn flow(it: &Connection) -> TrackedFlow {
        TrackedFlow {
            keys: FlowKey::of(it),
            entries: [None; 2],
            id: it.id,
            status: it.status,
            expiry: (100 + u64::from(it.timeout.unwrap())) * SECOND,
            known_use: 100 * SECOND,
            policy_timeout: None,
            liberal_at: 0,
            is_unproven: false,
            closing: Closing::default(),
        }
    }

    #[test]
    fn udp_that_has_lasted_is_assured_however_long_its_timeout_is() {
        let timeouts = FlowTimeouts { udp: 3600, udp_stream: 3600, ..FlowTimeouts::default() };
        let status_after = |status, last_seen: u64| {
            let mut flow = flow(&connection(libc::IPPROTO_UDP, status, 3600));
            let totals = TierTotals { last_seen: last_seen * SECOND, ..TierTotals::default() };
            let mut refresh = || timeouts.refresh(&mut flow, totals, last_seen * SECOND);
            let change = refresh();
            assert_eq!(refresh(), None, "Linux knows");
            change.and_then(|it| it.status)
        };
        assert_eq!(status_after(REPLIED, 102), None, "not yet for Linux either");
        assert_eq!(status_after(REPLIED, 103), Some(ASSURED));
        assert_eq!(status_after(ASSURED, 103), None);
        assert_eq!(status_after(Status::CONFIRMED, 103), None, "nobody has answered");
    }

    #[test]
    fn udp_that_has_not_lasted_keeps_the_shorter_timeout() {
        let timeouts = FlowTimeouts::default();
        let mut flow = flow(&connection(libc::IPPROTO_UDP, REPLIED, 30));
        let mut change_after = |tenths: u64, now: u64| {
            let last_seen = tenths * SECOND / 10;
            let totals = TierTotals { last_seen, ..TierTotals::default() };
            let change = timeouts.refresh(&mut flow, totals, now * SECOND)?;
            Some((change.timeout?, change.status))
        };
        assert_eq!(change_after(1005, 105), None, "more than half of the time is left");
        assert_eq!(change_after(1005, 118), Some((13, None)));
        // Less than two seconds after the packet that Linux knows of, and more.
        assert_eq!(change_after(1024, 118), Some((15, None)));
        assert_eq!(change_after(1045, 120), Some((105, Some(ASSURED))));
    }

    #[test]
    fn udp_that_has_not_lasted_keeps_the_timeout_of_an_unknown_policy() {
        let mut flow = flow(&connection(libc::IPPROTO_UDP, REPLIED, 50));
        let totals = TierTotals { last_seen: 101 * SECOND, ..TierTotals::default() };
        let mut refresh =
            |now: u64| FlowTimeouts::default().refresh(&mut flow, totals, now * SECOND);
        assert_eq!(refresh(120), None);
        assert_eq!(refresh(136).and_then(|it| it.timeout), Some(15));
    }

    #[test]
    fn a_successor_does_not_lengthen_the_timeout_of_an_idle_connection() {
        let timeouts = FlowTimeouts::default();
        let known_use = |protocol: i32, left: u32, idle: u64| {
            let mut flow = flow(&connection(protocol, ASSURED, left));
            let now = 1_000_000 * SECOND;
            flow.expiry = now + u64::from(left) * SECOND;
            timeouts.last_known_use(&flow, now - idle * SECOND, now) / SECOND
        };
        // Idle for 400 of 600 seconds, by a policy: no predecessor would have waited so long.
        assert_eq!(known_use(libc::IPPROTO_TCP, 200, 400), 1_000_000);
        // Of the usual 120 seconds 90 are left: Linux has seen a packet 30 seconds ago.
        assert_eq!(known_use(libc::IPPROTO_UDP, 90, 5), 1_000_000 - 30);
    }

    #[test]
    fn a_lowered_timeout_holds_from_the_next_packet_on() {
        let mut flow = flow(&connection(libc::IPPROTO_TCP, ASSURED, 432_000));
        let timeouts = FlowTimeouts { tcp: 3600, ..FlowTimeouts::default() };
        let mut timeout_after = |last_seen: u64, now: u64| {
            let totals = TierTotals { last_seen: last_seen * SECOND, ..TierTotals::default() };
            timeouts.refresh(&mut flow, totals, now * SECOND)?.timeout
        };
        assert_eq!(timeout_after(90, 110), None, "no packet since");
        assert_eq!(timeout_after(105, 110), Some(3595));
        assert_eq!(timeout_after(115, 120), None, "Linux knows");
        assert_eq!(timeout_after(2000, 2000), Some(3600));
    }
}
