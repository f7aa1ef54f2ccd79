//! Resync: reads all connections again, after events were lost and when flows are taken over.

use std::collections::HashMap;
use std::ops::DerefMut;

use super::{FlowFollower, dumping};
use crate::Error;
use crate::conntrack::{Connection, ConntrackChange};
use crate::flows::flow_table::{FlowWriter, directions};
use crate::flows::{FlowKey, FlowPolicy, FlowRecord, Suitability};

/// Minimum time between two resyncs, in nanoseconds.
const RESYNC_PAUSE: u64 = 100_000_000;
/// Further time until a resync for flows that found no room, or that Linux refused to change, in
/// nanoseconds.
const RETRY_PAUSE: u64 = 5_000_000_000;
/// Time within which taken-over flows are not removed though they were not reported, in
/// nanoseconds.
const PROOF_TIME: u64 = 2_000_000_000;

/// Proof that Linux reports what becomes of taken-over flows: it has reported each after a touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    /// Earliest end, in nanoseconds.
    end: u64,
    /// Number of the first touches in the queue that belong to it.
    pub(super) waiting: usize,
}

impl<T: DerefMut<Target = FlowWriter>> FlowFollower<T> {
    /// Returns true if all connections are to be read again though no event was lost: flows found
    /// no room and may find it now, or Linux has refused to change a flow.
    pub(super) fn must_retry(&self, now: u64) -> bool {
        let has_reason = self.was_refused || self.lacks_room && self.table.room() > 0;
        has_reason && now >= self.next_resync + RETRY_PAUSE
    }

    /// Reads all connections that the mark selects. Entries of others are removed; connections that
    /// are not in the table are touched if there is room, and added when their event comes.
    /// `is_first`: no event has shown yet that Linux reports what becomes of the flows in the
    /// table.
    pub(super) fn resync(&mut self, now: u64, is_first: bool) -> Result<(), Error> {
        let FlowPolicy { mark, mask, .. } = self.settings.policy;
        let mut connections: HashMap<FlowKey, Connection> = HashMap::new();
        let take = |it: Connection| {
            connections.insert(FlowKey::of(&it)[0], it);
        };
        let is_whole = self.listener.dump(mark, mask, take).map_err(dumping)?;
        connections.retain(|_, it| !matches!(self.judge(it), Suitability::Refused(_)));
        let mut expected: HashMap<FlowKey, FlowRecord> =
            HashMap::with_capacity(2 * connections.len());
        for it in connections.values() {
            expected.extend(directions(it));
        }
        let is_expected = |key: &FlowKey, record: &FlowRecord| expected.get(key) == Some(record);
        self.statistics.removed += self.table.retain(is_expected) as u64;
        self.touches.clear(); // those that are still needed follow
        (self.lacks_room, self.was_refused) = (false, false);
        let mut room = self.table.room();
        let mut has_unproven = false;
        for it in connections.values() {
            let is_known = self.table.has(it);
            if is_known && self.table.index(it).is_none() {
                let _ = self.add(it, now); // its entries are there
            }
            let is_unproven = self.table.get(it).is_some_and(|flow| {
                flow.is_unproven |= is_first;
                flow.is_unproven
            });
            if is_unproven {
                has_unproven = true;
            } else if is_known {
                continue;
            } else if room == 0 {
                self.lacks_room = true;
                continue;
            } else {
                room -= 1;
            }
            self.touches.push_back(ConntrackChange::touch(it));
        }
        let end = self.proof.map_or(now + PROOF_TIME, |proof| proof.end);
        self.proof = has_unproven.then_some(Proof { end, waiting: self.touches.len() });
        self.must_resync = !is_whole;
        self.next_resync = now + RESYNC_PAUSE;
        self.statistics.resyncs += 1;
        Ok(())
    }

    /// Removes taken-over flows that Linux has not reported, once all were touched and all events
    /// are read.
    pub(super) fn end_proof(&mut self, now: u64) {
        if self.proof.is_none_or(|proof| now < proof.end || proof.waiting > 0) {
            return;
        }
        self.proof = None;
        for index in 0..self.table.capacity() {
            if self.table.at(index).is_some_and(|flow| flow.is_unproven) {
                self.table.remove_at(index);
                self.statistics.removed += 1;
            }
        }
    }
}
