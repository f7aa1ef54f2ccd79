//! Rates of sessions, for `upf top`: what all sessions have counted between two scans.
//!
//! A request starts a scan of the counters of all sessions, in slices between the other work of the
//! control plane's loop. The rates are those since the scan before, whoever has asked for that; the
//! first scan only reads the counters. Without requests, the readings are forgotten after 90 s.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::query::{MAX_PAGE, PendingQuery};
use super::slice_counts::SliceCounts;
use super::view::{OutcomeRate, SliceDrops, SliceRates, TopRow, TopView};
use crate::pfcp::sessions::Sessions;
use crate::rules::layout::drop_reason::DropReason;
use crate::session::SessionIndex;
use crate::time::{Now, SECOND};
use crate::transactions::Counts;
use crate::usage::Readings;

/// Maximum number of session indices visited in one call, so that requests wait for few.
const VISITED: u32 = 16_384;
/// Time after which readings without requests are forgotten, in nanoseconds.
const FORGOTTEN: u64 = 90 * SECOND;

/// Packets and octets by outcome.
pub(crate) type Outcomes = Vec<(DropReason, [u64; 2])>;
/// Counters that rates are made of: by outcome, and by slice and DNN.
pub(crate) type Counters = (Outcomes, Vec<SliceCounts>);

/// Session and its rates, ordered by octets per second, then by packets per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rated {
    octets: u64,
    packets: u64,
    id: SessionIndex,
    /// Rates per second: uplink octets and packets, downlink octets and packets.
    rates: Counts,
}

/// Scans of the counters of all sessions.
#[derive(Debug, Default)]
pub(crate) struct RateSampler {
    readings: Readings,
    outcomes: Outcomes,
    slices: Vec<SliceCounts>,
    /// Time of the last complete scan, in nanoseconds of `CLOCK_MONOTONIC`; 0 if there is none.
    scanned: u64,
    /// Requests for the result of the next scan.
    waiting: Vec<PendingQuery>,
    scan: Option<Scan>,
}

/// Scan in progress.
#[derive(Debug)]
struct Scan {
    /// Start, in nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    next: u32,
    /// Sessions with traffic.
    active: usize,
    /// The busiest of them, the least busy one first.
    busiest: BinaryHeap<Reverse<Rated>>,
}

impl RateSampler {
    /// Adds a request for the result of the next scan.
    pub(crate) fn ask(&mut self, query: PendingQuery) {
        self.waiting.push(query);
    }

    /// Returns true if a scan has work.
    pub(crate) const fn is_scanning(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Continues the scan. Returns the requests and their result when it is complete. `counters`
    /// are those since the start.
    pub(crate) fn advance(
        &mut self,
        sessions: &Sessions,
        counters: &dyn Fn() -> Counters,
        now: Now,
    ) -> Option<(Vec<PendingQuery>, TopView)> {
        if self.waiting.is_empty() {
            if self.scanned != 0 && now.monotonic.saturating_sub(self.scanned) > FORGOTTEN {
                *self = Self::default();
            }
            return None;
        }
        let mut scan = self.scan.take().unwrap_or_else(|| Scan::new(now));
        let end = scan.next.saturating_add(VISITED).min(sessions.capacity());
        for (id, seid) in sessions.seids_in(scan.next..end) {
            let counters = sessions.published().counters(id.0);
            let period = self.readings.read(id, seid, now.monotonic, counters);
            scan.add(period.map(|period| {
                let elapsed = now.monotonic.saturating_sub(period.since);
                (id, period.counts.map(|count| per_second(count, elapsed)))
            }));
        }
        scan.next = end;
        if end < sessions.capacity() {
            self.scan = Some(scan);
            return None;
        }
        Some((std::mem::take(&mut self.waiting), self.end(scan, sessions, counters())))
    }

    /// Returns the result of a complete scan.
    fn end(&mut self, scan: Scan, sessions: &Sessions, counters: Counters) -> TopView {
        let elapsed = if self.scanned == 0 { 0 } else { scan.at.saturating_sub(self.scanned) };
        let (outcomes, slices) = counters;
        let before = std::mem::replace(&mut self.outcomes, outcomes);
        let slices_before = std::mem::replace(&mut self.slices, slices);
        let rate = |(reason, [packets, octets]): &(DropReason, [u64; 2])| {
            let earlier = before.iter().find(|(other, _)| other == reason);
            let [packets_before, octets_before] = earlier.map_or([0; 2], |(_, counts)| *counts);
            OutcomeRate {
                outcome: reason.name().to_owned(),
                is_drop: reason.is_drop(),
                packets_per_s: per_second(packets.wrapping_sub(packets_before), elapsed),
                octets_per_s: per_second(octets.wrapping_sub(octets_before), elapsed),
                packets: *packets,
            }
        };
        let outcomes = self.outcomes.iter().map(rate).collect();
        let slices = self.slices.iter().map(|it| slice_rates(it, &slices_before, elapsed));
        let slices = slices.collect();
        self.scanned = scan.at;
        let rows =
            scan.busiest.into_sorted_vec().into_iter().filter_map(|Reverse(rated)| {
                Some(TopRow::of(&sessions.get(rated.id)?, rated.rates))
            });
        TopView {
            elapsed_s: elapsed as f64 / SECOND as f64,
            total: sessions.len() as usize,
            active: scan.active,
            sessions: rows.collect(),
            slices,
            outcomes,
        }
    }
}

impl Scan {
    fn new(now: Now) -> Self {
        Self { at: now.monotonic, next: 0, active: 0, busiest: BinaryHeap::new() }
    }

    /// Adds a session with its rates.
    fn add(&mut self, rated: Option<(SessionIndex, Counts)>) {
        let Some((id, rates)) = rated.filter(|(_, rates)| *rates != [0; 4]) else { return };
        self.active += 1;
        let [up, up_packets, down, down_packets] = rates;
        let (octets, packets) = (up.saturating_add(down), up_packets.saturating_add(down_packets));
        self.busiest.push(Reverse(Rated { octets, packets, id, rates }));
        if self.busiest.len() > MAX_PAGE {
            self.busiest.pop();
        }
    }
}

/// Returns the rates of a slice and a DNN by their counters now and before.
fn slice_rates(now: &SliceCounts, before: &[SliceCounts], elapsed: u64) -> SliceRates {
    let earlier = before.iter().find(|it| it.labels == now.labels).cloned().unwrap_or_default();
    let rate = |now: u64, before: u64| per_second(now.saturating_sub(before), elapsed);
    let [uplink, downlink] = [0, 1].map(|direction: usize| {
        let (now, before) = (now.forwarded[direction], earlier.forwarded[direction]);
        [rate(now[0], before[0]), rate(now[1], before[1])]
    });
    let dropped = |(reason, packets): (DropReason, u64)| {
        let before = earlier.drops().find(|(other, _)| *other == reason);
        let before = before.map_or(0, |(_, packets)| packets);
        SliceDrops {
            reason: reason.name().to_owned(),
            packets_per_s: rate(packets, before),
            packets,
        }
    };
    SliceRates {
        slice: now.labels.slice.clone(),
        dnn: now.labels.dnn.clone(),
        sessions: now.sessions,
        uplink_packets_per_s: uplink[0],
        uplink_octets_per_s: uplink[1],
        downlink_packets_per_s: downlink[0],
        downlink_octets_per_s: downlink[1],
        dropped_per_s: rate(now.dropped(), earlier.dropped()),
        drops: now.drops().map(dropped).collect(),
    }
}

/// Returns a rate per second, rounded up; 0 for no time.
fn per_second(count: u64, nanoseconds: u64) -> u64 {
    let count = u128::from(count) * u128::from(SECOND);
    let rate = if nanoseconds == 0 { 0 } else { count.div_ceil(u128::from(nanoseconds)) };
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_sessions_stay_and_come_first() {
        let mut scan = Scan::new(Now::default());
        for number in 0..2 * MAX_PAGE as u32 {
            let octets = u64::from(number * 7919 % (2 * MAX_PAGE as u32));
            scan.add(Some((SessionIndex(number), [octets, 1, 0, 0])));
        }
        scan.add(Some((SessionIndex(9), [0; 4])));
        scan.add(None);
        assert_eq!(scan.active, 2 * MAX_PAGE);
        let sorted = scan.busiest.into_sorted_vec();
        let octets: Vec<u64> = sorted.iter().map(|Reverse(rated)| rated.octets).collect();
        let expected: Vec<u64> = (MAX_PAGE as u64..2 * MAX_PAGE as u64).rev().collect();
        assert_eq!(octets, expected);
    }

    #[test]
    fn rates_are_rounded_up_and_do_not_overflow() {
        assert_eq!(per_second(0, SECOND), 0);
        assert_eq!(per_second(1, 60 * SECOND), 1, "some traffic is not none");
        assert_eq!(per_second(150, SECOND / 2), 300);
        assert_eq!(per_second(u64::MAX, 1), u64::MAX);
        assert_eq!(per_second(7, 0), 0);
    }
}
