//! Allocator of indices that are reused only after every lane has passed a turn (blocks, networks,
//! counter slots), the assignment of counter slots to URRs and QERs, and the counters in them.

use std::time::{Duration, Instant};

use fastlane::table::{EntryId, GracePeriods, Snapshot};

use super::{PublishError, Published};
use crate::rules::layout::counter_slots;
use crate::session::{Qer, Session, SessionIndex, Urr};

/// Maximum wait for a lane.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Indices of a range: a bit set, and lists of those freed lately.
#[derive(Debug)]
pub(super) struct IndexAllocator {
    first: u32,
    count: u32,
    used: Vec<u64>,
    /// Number of free indices, including those that lanes may still use.
    left: u32,
    /// Start of the search for a free index.
    cursor: u32,
    /// Freed since the snapshot.
    retired: Vec<u32>,
    /// Freed before the snapshot.
    waiting: Vec<u32>,
    since: Option<Snapshot>,
    /// Snapshot of the start, after which all lanes must have passed a turn.
    start: Option<Snapshot>,
}

impl IndexAllocator {
    /// Creates an allocator of `first..end`. It allocates nothing until the lanes have passed a
    /// turn, since a lane may still use an index that a former process freed.
    pub(super) fn new(first: usize, end: usize, lanes: &GracePeriods) -> Self {
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        let count = u32::try_from(end).unwrap_or(u32::MAX).saturating_sub(first);
        Self {
            first,
            count,
            used: vec![0; count.div_ceil(64) as usize],
            left: count,
            cursor: 0,
            retired: Vec::new(),
            waiting: Vec::new(),
            since: None,
            start: Some(lanes.snapshot()),
        }
    }

    fn bit(&self, number: u32) -> Option<(usize, u64)> {
        let place = number.checked_sub(self.first).filter(|place| *place < self.count)?;
        Some((place as usize / 64, 1 << (place % 64)))
    }

    /// Returns true if an index is in the range.
    pub(super) fn has(&self, number: u32) -> bool {
        self.bit(number).is_some()
    }

    /// Marks an index as used; false if it is used already or out of range.
    pub(super) fn mark(&mut self, number: u32) -> bool {
        let Some((word, bit)) = self.bit(number) else { return false };
        let is_new = self.used[word] & bit == 0;
        self.used[word] |= bit;
        self.left -= u32::from(is_new);
        is_new
    }

    /// Returns true if an index is used or was used lately.
    pub(super) fn is_used(&self, number: u32) -> bool {
        self.bit(number).is_some_and(|(word, bit)| self.used[word] & bit != 0)
    }

    /// Returns the number of free indices, including those that lanes may still use.
    pub(super) const fn left(&self) -> u32 {
        self.left
    }

    /// Frees a used index, once.
    pub(super) fn retire(&mut self, number: u32) {
        if self.bit(number).is_some_and(|(word, bit)| self.used[word] & bit != 0) {
            self.retired.push(number);
            self.left += 1;
        }
    }

    /// Frees an index that nothing has referred to, at once.
    pub(super) fn untake(&mut self, number: u32) {
        if let Some((word, bit)) = self.bit(number) {
            self.left += u32::from(self.used[word] & bit != 0);
            self.used[word] &= !bit;
        }
    }

    /// Allocates an index that no lane uses; `None` if all are used, or a lane has not passed a
    /// turn for a second.
    pub(super) fn take(&mut self, lanes: &GracePeriods) -> Option<u32> {
        self.take_and_reclaim(lanes, &mut Vec::new())
    }

    /// Allocates an index and appends those that have become free to `freed`, like
    /// [`reclaim`](Self::reclaim).
    pub(super) fn take_and_reclaim(
        &mut self,
        lanes: &GracePeriods,
        freed: &mut Vec<u32>,
    ) -> Option<u32> {
        let mut begun = None;
        while self.left > 0 {
            self.reclaim(lanes, freed);
            if self.start.is_none()
                && let Some(number) = self.next()
            {
                self.mark(number);
                return Some(number);
            }
            if begun.get_or_insert_with(Instant::now).elapsed() > MAX_WAIT {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        None
    }

    /// Appends the freed indices that no lane uses any more to `freed`. Until then what they refer
    /// to must not change, since a lane may be reading it.
    pub(super) fn reclaim(&mut self, lanes: &GracePeriods, freed: &mut Vec<u32>) {
        if self.start.as_mut().is_some_and(|start| lanes.have_passed(start)) {
            self.start = None;
        }
        loop {
            if let Some(since) = &mut self.since {
                if !lanes.have_passed(since) {
                    return;
                }
                self.since = None;
                for number in std::mem::take(&mut self.waiting) {
                    if let Some((word, bit)) = self.bit(number) {
                        self.used[word] &= !bit;
                        freed.push(number);
                    }
                }
            }
            if self.retired.is_empty() {
                return;
            }
            std::mem::swap(&mut self.retired, &mut self.waiting);
            self.since = Some(lanes.snapshot());
        }
    }

    /// Returns the next free index from the cursor on.
    fn next(&mut self) -> Option<u32> {
        let words = self.used.len();
        let start = self.cursor as usize / 64;
        for step in 0..=words {
            let word = (start + step) % words.max(1);
            let free = !self.used.get(word)?;
            if free == 0 {
                continue;
            }
            let place = word as u32 * 64 + free.trailing_zeros();
            if place < self.count {
                self.cursor = place;
                return Some(self.first + place);
            }
        }
        None
    }
}

/// Returns the counter slots of a session's URRs.
fn urr_slots(session: &Session) -> impl Iterator<Item = u32> {
    session.urrs.iter().map(|urr| urr.progress.line)
}

fn qer_slots(session: &Session) -> impl Iterator<Item = u32> {
    session.qers.iter().map(|qer| qer.line)
}

/// Returns all counter slots of a session except its own, each once.
pub(super) fn extra_slots(session: &Session) -> Vec<u32> {
    let mut lines: Vec<u32> = urr_slots(session).chain(qer_slots(session)).collect();
    lines.retain(|line| *line != session.id.0);
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Returns true if a URR existed before, with the same slot.
fn is_old(before: Option<&Session>, urr: &Urr) -> bool {
    let same = |it: &Urr| it.id == urr.id && it.progress.line == urr.progress.line;
    before.is_some_and(|before| before.urrs.iter().any(same))
}

fn is_old_qer(before: Option<&Session>, qer: &Qer) -> bool {
    let same = |it: &Qer| it.id == qer.id && it.line == qer.line;
    before.is_some_and(|before| before.qers.iter().any(same))
}

impl Published {
    /// Assigns counter slots to the URRs and QERs that are new since `before`. It must be called
    /// before the session is committed. Afterwards `Urr::begin` starts each new URR from the
    /// current counters of its slot.
    ///
    /// # Errors
    /// If no slot is free; nothing has changed then.
    pub fn assign(
        &mut self,
        before: Option<&Session>,
        session: &mut Session,
    ) -> Result<(), PublishError> {
        let mut taken = Vec::new();
        let done = self.assign_all(before, session, &mut taken);
        if done.is_err() {
            taken.into_iter().for_each(|line| self.slots.untake(line));
        }
        done
    }

    fn assign_all(
        &mut self,
        before: Option<&Session>,
        session: &mut Session,
        taken: &mut Vec<u32>,
    ) -> Result<(), PublishError> {
        let own = session.id.0;
        let old_urrs: Vec<bool> = session.urrs.iter().map(|urr| is_old(before, urr)).collect();
        let old_qers: Vec<bool> = session.qers.iter().map(|qer| is_old_qer(before, qer)).collect();
        // A slot that is unused now may have been used until now, and lanes may still count there.
        let mut own_urr = !before.is_some_and(|it| urr_slots(it).any(|line| line == own));
        let mut own_qer = !before.is_some_and(|it| qer_slots(it).any(|line| line == own));
        let mut lines = Vec::with_capacity(session.urrs.len() + session.qers.len());
        for is_old in &old_urrs {
            lines.push(match *is_old {
                true => None,
                false if std::mem::take(&mut own_urr) => Some(own),
                false => Some(self.take_slot(taken)?),
            });
        }
        let mut meters = Vec::with_capacity(session.qers.len());
        for is_old in &old_qers {
            meters.push(match *is_old {
                true => None,
                // Only a maximum bit rate needs a meter; one that is added later uses the slot as
                // it is.
                false if std::mem::take(&mut own_qer) => Some(own),
                false => Some(self.meter_slot(session, &lines, &meters, taken)?),
            });
        }
        for (urr, line) in session.urrs.iter_mut().zip(lines) {
            urr.progress.line = line.unwrap_or(urr.progress.line);
        }
        for (qer, line) in session.qers.iter_mut().zip(meters) {
            qer.line = line.unwrap_or(qer.line);
        }
        Ok(())
    }

    /// Returns a slot for a meter: a URR's slot of this session without a meter, or a free one.
    fn meter_slot(
        &mut self,
        session: &Session,
        lines: &[Option<u32>],
        meters: &[Option<u32>],
        taken: &mut Vec<u32>,
    ) -> Result<u32, PublishError> {
        let is_free = |line: &u32| {
            let here = qer_slots(session).any(|it| it == *line);
            !here && !meters.contains(&Some(*line)) && *line != session.id.0
        };
        let shared = lines.iter().flatten().copied().find(is_free);
        shared.map_or_else(|| self.take_slot(taken), Ok)
    }

    fn take_slot(&mut self, taken: &mut Vec<u32>) -> Result<u32, PublishError> {
        let line = self.slots.take(&self.tables.grace_periods);
        let line = line.ok_or(PublishError::Exhausted("counter slot"))?;
        taken.push(line);
        Ok(line)
    }

    /// Frees what [`assign`](Self::assign) assigned to a session that was not published.
    pub fn unassign(&mut self, before: Option<&Session>, session: &Session) {
        let kept = before.map(extra_slots).unwrap_or_default();
        for line in extra_slots(session) {
            if !kept.contains(&line) {
                self.slots.untake(line);
            }
        }
    }

    /// Frees the slots and the block of external ports of a deleted session that was
    /// [withdrawn](Self::take_down).
    pub fn release(&mut self, session: &Session) {
        self.nat.release(&mut self.tables, session);
        self.free_slots(session, None);
    }

    /// Frees the slots that a session no longer uses.
    pub(super) fn free_slots(&mut self, before: &Session, now: Option<&Session>) {
        let kept = now.map(extra_slots).unwrap_or_default();
        for line in extra_slots(before) {
            if self.slots.has(line) && !kept.contains(&line) {
                self.slots.retire(line);
            }
        }
    }

    /// Returns the counters of a slot: uplink octets, uplink packets, downlink octets, downlink
    /// packets.
    #[must_use]
    pub fn counters(&self, line: u32) -> [u64; 4] {
        let words = self.tables.state.read(EntryId(line));
        [
            counter_slots::UPLINK_OCTETS,
            counter_slots::UPLINK_PACKETS,
            counter_slots::DOWNLINK_OCTETS,
            counter_slots::DOWNLINK_PACKETS,
        ]
        .map(|word| words[word])
    }

    /// Returns the time when a slot counted last, or, for a session's own slot, when a packet of
    /// the session passed that no URR counted, in ns of `CLOCK_MONOTONIC`; 0: never.
    #[must_use]
    pub fn last(&self, line: u32) -> u64 {
        self.tables.state.read(EntryId(line))[counter_slots::LAST]
    }

    /// Returns the events of a slot: bits of [`counter_slots::event`], and the lower 32 bits of the
    /// version in the upper half.
    #[must_use]
    pub fn events(&self, line: u32) -> u64 {
        let marker = counter_slots::event::MARKER;
        self.tables.state.read(EntryId(line))[counter_slots::EVENTS] & !marker
    }

    /// Returns the identification of the end marker sent last: bits
    /// [`counter_slots::event::MARKER`].
    #[must_use]
    pub fn marker(&self, id: SessionIndex) -> u64 {
        self.tables.state.read(EntryId(id.0))[counter_slots::EVENTS] & counter_slots::event::MARKER
    }
}
