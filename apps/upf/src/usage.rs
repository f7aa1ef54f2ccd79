//! Usage reporting: what URRs measure, when they report, and the session reports that say so.
//!
//! A lane counts packets and acts on limits by itself ([`Watch`](crate::session::Watch): absolute
//! counter values and moments of `CLOCK_MONOTONIC`). This part reads the counters, decides what is
//! due, keeps how far it has come in the session's record ([`Progress`](crate::session::Progress)),
//! and tells the control plane. Clauses are those of TS 29.244.
//!
//! # Exactly once
//! Counters only ever grow. A report says what was counted from `reported` up to now, and moves
//! `reported` there; so reports neither overlap nor leave a gap, whatever made them. In this order:
//! 1. the session with its new progress, UR-SEQN and the report itself (`unacknowledged`) is
//!    committed, in one store;
//! 2. it is published, so that lanes watch from the new base;
//! 3. the request is sent; node repeats it each T1;
//! 4. its answer removes it from the record.
//!
//! A process that is killed before 1 has done nothing; after it, [`Usage::open`] sends the same
//! octets with the same sequence number. Reports in an answer are committed with the answer, which
//! sessions keep for retransmissions. A control plane that gets a report twice knows it by UR-SEQN.
//! Seconds are differences of rounded sums, so they add up too. `tests/kills.rs` stops the process
//! before each operation on a table.
//!
//! # When a URR reports (clauses 5.2.2.2, 5.2.2.3, 8.2.19, 8.2.41)
//!
//! | trigger | when | and then |
//! |---|---|---|
//! | VOLTH | octets since the last report reach a threshold, in total, up or down | counts anew |
//! | TIMTH | seconds of use since the last report reach the threshold | counts anew |
//! | PERIO | each measurement period from when it was given | other reports do not move it |
//! | VOLQU | octets since the quota was given reach it, or a packet did not fit | packets stop |
//! | TIMQU | seconds of use since the quota was given reach it | packets stop |
//! | QUVTI | the validity time has passed since the quota was given | packets stop |
//! | QUHTI | no packet for the holding time, since the last one or the quota | packets stop |
//! | START | the first packet, and the first after a stop | an event: no usage in it |
//! | STOPT | no packet for the inactivity detection time (10 s if there is none) | an event |
//! | DROTH | a lane has dropped a packet to the user | counts anew |
//! | LIUSA | a URR that it is linked to reports usage, also by way of others | |
//! | MONIT | usage before the monitoring time, in the report that comes next | see below |
//! | IMMER | Query URR, QAURR | in the answer, with the Query URR Reference |
//! | TERMR | the URR is removed or the session deleted | in the answer |
//!
//! What is due is noted in the record (`due`) even while an earlier report waits for its answer:
//! a session has one round of usage reports under way. A quota acts also when the URR does not ask
//! to report it. Each report has a number, one more each time (clause 8.2.71).
//!
//! # Time (clauses 5.2.2.2, 8.2.18, 8.2.68)
//! Use begins with the first packet, or at once with ISTM. With an inactivity detection time it
//! ends so long after a packet, and that wait counts as used (as TS 32.299 has it for the quota
//! consumption time); it begins again with the next packet. INAM suspends measuring.
//!
//! # Monitoring time (clauses 5.2.2.2, 8.2.15, 8.2.67)
//! At that moment the counters are noted, and subsequent thresholds and quotas come into force;
//! without them the rest of the earlier ones goes on. The next report is two: what was before (BEF,
//! MONIT) and what was after (AFT). A million sessions with one tariff time thus do not all report
//! in that second. The counters are read when the timer is due: packets in between are before.
//!
//! # Where the specification leaves a choice
//! * A report for any reason is the base of the thresholds; quotas go on until a new one is given.
//! * A new quota counts from the counters when it comes; what was left of the old one is forgotten.
//! * When a quota has ended for one reason, the others report nothing until there is a new one.
//! * A quota of nothing stops all packets and is reported when the first one is refused.
//! * A threshold of nothing is one octet, or one second.
//! * A monitoring time that is already past has passed: nothing is split.
//! * Start Time and End Time follow each other without a gap; events have an Event Time Stamp.
//! * Time of First Packet is said when it is known: by a lane's message, or of a lone packet.
//! * DROTH reports the first drop: the lane does not count by URR what it drops, so a threshold
//!   beyond one packet is refused (cause 76). So are thresholds and quotas of events: which events
//!   of an application count is nowhere said. ENVCL and what belongs to Ethernet and multicast make
//!   no report; their features are not advertised.
//! * A report that nobody answers N1 times T1 is sent again after 30 seconds, the same octets.
//! * An answer with cause 72, 74 or 77 is as no answer; any other takes the report as received.
//!
//! # Other session reports (clauses 5.2.4, 5.10, 5.11, 7.5.8)
//! * *Downlink data*: one for each PDR whose packets are held with NOCP, until its FAR holds no
//!   more; after the BAR's notification delay, and not at all if packets went on before. It carries
//!   QFI and DSCP if the lane's message came. Its answer may change the BAR, or drop what is held.
//!   A session's line says once in a version that a packet is held, so a second PDR of the session
//!   is told of when its packet is the first one seen after another change.
//! * *Inactivity* (UPIR): no packet of the session for that time; once, until there is one.
//! * *Error indication* (ERIR): the session is found by the tunnel's address and TEID (an index of
//!   16 bytes a tunnel at most). One at a time for a session; unknown tunnels are counted.
//! * Cause 65 to any of them: [`Outcome::Gone`], the session is to be removed here.
//!
//! # Work
//! Events come as pending bits; messages of lanes only make it sooner. A scan passes over 8192
//! places in 10 ms. Timers are one heap, a deadline for each session that has one, made again from
//! the records by [`Usage::open`]. A call looks at 512 sessions at most.

mod answered;
mod ask;
mod engine;
mod ground;
mod look;
mod meter;
mod next;
mod parked;
mod provision;
mod remotes;
mod settle;
mod take;
mod timers;
mod write;

pub use answered::Outcome;
pub use ask::{forget_notified, in_answer};
pub use engine::{On, Usage, UsageStatistics};
pub use ground::{Ground, Lines};
pub use meter::Meter;
pub use next::next;
pub use provision::{Given, begin, update};
pub use settle::{STOP_OF_TRAFFIC_S, settle};
pub use take::{DURATION, MOST, PACKETS, VOLUME, take, take_all};
pub use write::write_usage;

#[cfg(test)]
mod tests;
