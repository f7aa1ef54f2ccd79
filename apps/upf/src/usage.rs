//! Usage reporting: measurement of URRs, triggers of reports, and session reports.
//!
//! A lane counts packets and enforces limits by itself ([`Watch`](crate::session::Watch): absolute
//! counter values and times of `CLOCK_MONOTONIC`). This module reads the counters, evaluates the
//! triggers, stores the progress in the session's record ([`Progress`](crate::session::Progress))
//! and reports to the control plane. Clauses are those of TS 29.244.
//!
//! # Exactly once
//! Counters never decrease. A report covers what was counted from `reported` up to now, and moves
//! `reported` there. So reports neither overlap nor leave a gap, whatever triggered them. The order
//! is:
//! 1. the session with its new progress, UR-SEQN and the report itself (`unacknowledged`) is
//!    committed by one store;
//! 2. it is published, so that lanes enforce limits from the new base;
//! 3. the request is sent, and retransmitted each T1;
//! 4. the response removes it from the record.
//!
//! A process that is killed before step 1 has done nothing. After it, [`Usage::open`] sends the
//! same octets with the same sequence number. Reports in a response are committed with the
//! response, which is stored for retransmissions. A control plane that receives a report twice
//! recognizes it by UR-SEQN. Seconds are differences of rounded sums, so they add up too.
//! `tests/kills.rs` stops the process before each table operation.
//!
//! # Triggers (clauses 5.2.2.2, 5.2.2.3, 8.2.19, 8.2.41)
//!
//! | trigger | condition | effect |
//! |---|---|---|
//! | VOLTH | octets since the last report reach a threshold, in total, up or down | counts anew |
//! | TIMTH | seconds of use since the last report reach the threshold | counts anew |
//! | PERIO | each measurement period since it was set | other reports do not move it |
//! | VOLQU | octets since the grant reach the quota, or a packet did not fit | packets stop |
//! | TIMQU | seconds of use since the grant reach the quota | packets stop |
//! | QUVTI | the validity time has passed since the grant | packets stop |
//! | QUHTI | no packet for the holding time, since the last one or the grant | packets stop |
//! | START | the first packet, and the first after a stop | an event without usage |
//! | STOPT | no packet for the inactivity detection time (default 10 s) | an event |
//! | DROTH | a lane has dropped a downlink packet | counts anew |
//! | LIUSA | a linked URR reports usage, also transitively | |
//! | MONIT | usage before the monitoring time, in the next report | see below |
//! | IMMER | Query URR, QAURR | in the response, with the Query URR Reference |
//! | TERMR | the URR or its last PDR is removed, or the session deleted | in the response |
//!
//! Triggers are stored in the record (`due`) even while an earlier report waits for its response: a
//! session has one pending round of usage reports. A quota is enforced even if the URR does not ask
//! to report it. Each report has a UR-SEQN, increasing by one (clause 8.2.71).
//!
//! # Time (clauses 5.2.2.2, 8.2.18, 8.2.68)
//! The time of use starts with the first packet, or at once with ISTM. With an inactivity detection
//! time it ends that long after the last packet, and the wait counts as used (like the quota
//! consumption time of TS 32.299). It starts again with the next packet. INAM suspends the
//! measurement.
//!
//! # Monitoring time (clauses 5.2.2.2, 8.2.15, 8.2.67)
//! At the monitoring time the counters are stored, and subsequent thresholds and quotas apply;
//! without them the rest of the earlier ones continues. The next report is two: usage before (BEF,
//! MONIT) and after (AFT). So a million sessions with one tariff time do not all report in that
//! second. The counters are read when the timer expires: packets in between count as before.
//!
//! # Choices where the specification leaves one
//! * A report for any reason is the base of the thresholds; quotas continue until a new grant.
//! * A new quota counts from the counters at its grant; the rest of the old one is discarded.
//! * When a quota has ended for one reason, the others report nothing until a new grant.
//! * A quota of zero stops all packets and is reported when the first one is dropped.
//! * A threshold of zero is one octet, or one second.
//! * A monitoring time in the past has passed: nothing is split.
//! * Start Time and End Time follow each other without a gap; events have an Event Time Stamp.
//! * Time of First Packet is sent if it is known: from a lane message, or for a single packet.
//! * DROTH reports the first drop: the lane does not count drops per URR, so a threshold beyond one
//!   packet is refused (cause 76). Event thresholds and quotas are refused too, because no
//!   specification says which application events count, and so are ENVCL, REEMR and UPINT. The
//!   triggers of Ethernet and multicast cause no report; their features are not announced.
//! * A report without response after N1 times T1 is sent again after 30 seconds, with the same
//!   octets.
//! * A response with cause 72, 74, 77 or 78 counts as none; any other acknowledges the report.
//!
//! # Other session reports (clauses 5.2.4, 5.10, 5.11, 7.5.8)
//! * *Downlink data*: one for each PDR with buffered packets and NOCP, until its FAR stops
//!   buffering. It is sent after the BAR's notification delay, and not at all if packets were
//!   forwarded before. It carries QFI and DSCP if the lane message arrived. Its response may change
//!   the BAR, or discard the buffer. A session's state slot reports a buffered packet once per
//!   version. So a second PDR of the session is reported when its packet is the first one after
//!   another change.
//! * *Inactivity* (UPIR): no packet of the session for that time; once, until there is one.
//! * *Error indication* (ERIR): the session is found by address and TEID of the tunnel (an index of
//!   at most 16 bytes per tunnel). One at a time per session; unknown tunnels are counted.
//! * Cause 65 to any of them: [`Outcome::Gone`], the session must be removed here.
//! * A report may go to another control plane function than that of the CP F-SEID ([`redirect`],
//!   clause 5.22): the node decides which, and the engine remembers it ([`Usage::detours`]).
//! * A session with another CP F-SEID than before has its pending reports sent there at once.
//!
//! # Work
//! Events arrive as pending bits; lane messages only make it sooner. A scan passes over 8192
//! session indices in 10 ms. Timers are one heap with at most one deadline per session, rebuilt
//! from the records by [`Usage::open`]. A call evaluates at most 512 sessions.

mod detours;
mod engine;
mod evaluate;
mod measurement;
mod peer_tunnels;
mod readings;
mod reports;

pub use detours::redirect;
pub use engine::{ReportContext, SessionBackend, Usage, UsageStatistics};
pub use evaluate::Outcome;
pub use measurement::{Meter, STOP_OF_TRAFFIC_S, StateSlots, next, settle, update};
pub use readings::{CountedPeriod, Readings};
pub use reports::write_usage;
pub use reports::{
    DURATION, MOST, PACKETS, VOLUME, collect_all, collect_for_response, forget_notified, take,
};

#[cfg(test)]
mod tests;
