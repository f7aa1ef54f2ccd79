//! Pending events: events of entries that must not be lost, unlike messages.
//!
//! ```text
//! page 0   header
//! index    per lane (one copy if lanes is 0) one word u64 per entry: number of events that the
//!          lane has raised for it; each copy on cache lines of its own
//! data     one word u64 per entry, written by the slow path: number of events that are handled
//! ```
//! An entry is pending while the sum of the lanes' words differs from the slow path's word. Each
//! word has one writer, and the memory survives both sides.

use std::ops::Range;
use std::sync::Arc;

use crate::header::Header;
use crate::layout::PAGE;
use crate::{EntryId, Reset, SharedMemory, SharedWords, Spec, TableError};

/// Slow path's side of pending events.
///
/// # Examples
/// ```
/// use fastlane_table::{EntryId, Pending, Spec};
///
/// let memory = Spec::pending("expired", 100, 2).create()?; // 100 entries, two lanes
/// let pending = Pending::attach(&memory)?;
/// pending.lane(1).raise(EntryId(7)); // in lane 1
///
/// let mut found = Vec::new();
/// pending.scan(|entry, seen| found.push((entry, seen)));
/// assert_eq!(found, [(EntryId(7), 1)]);
/// pending.done(EntryId(7), 1); // an event raised since then would keep the entry pending
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pending {
    words: SharedWords,
    capacity: usize,
    /// Distance between two copies, in words. The last copy is the slow path's.
    copy: usize,
    lanes: usize,
}

impl Pending {
    /// Attaches to pending events.
    ///
    /// # Errors
    /// Returns an error if the memory holds none.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        let header = Header::expect(memory, 0, &Spec::pending("", 1, 0))?;
        let words = SharedWords::new(memory, PAGE / 8, (header.layout.length - PAGE) / 8);
        let (copy, capacity) = (header.layout.stride / 8, header.spec.capacity);
        let lanes = header.spec.lanes.max(1);
        Ok(Self { words: header.part(words.ok())?, capacity, copy, lanes })
    }

    /// Returns the maximum number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the handle by which a lane raises events. If there is one copy, the lane that owns
    /// an entry's key raises its events.
    ///
    /// # Panics
    /// Panics if there is no such lane.
    #[must_use]
    pub fn lane(&self, lane: usize) -> LanePending {
        assert!(lane < self.lanes || self.lanes == 1, "lane {lane} of {}", self.lanes);
        let copy = if self.lanes == 1 { 0 } else { lane };
        LanePending { words: self.words.clone(), capacity: self.capacity, first: copy * self.copy }
    }

    fn done_word(&self, entry: usize) -> usize {
        self.lanes * self.copy + entry
    }

    fn raised(&self, entry: usize) -> u64 {
        let copies = (0..self.lanes).map(|lane| lane * self.copy + entry);
        copies.fold(0, |sum, word| sum.wrapping_add(self.words.load_acquire(word)))
    }

    /// Calls `visit` for each pending entry. Pass the number that it gets to [`done`](Self::done)
    /// once the events are handled.
    pub fn scan(&self, visit: impl FnMut(EntryId, u64)) {
        self.scan_range(0..self.capacity, visit);
    }

    /// Calls `visit` for each pending entry in a range, to spread a scan over time.
    pub fn scan_range(&self, entries: Range<usize>, mut visit: impl FnMut(EntryId, u64)) {
        for entry in entries.start..entries.end.min(self.capacity) {
            let seen = self.raised(entry);
            if seen != self.words.load(self.done_word(entry)) {
                visit(EntryId(entry as u32), seen);
            }
        }
    }

    /// Marks the events of an entry up to `seen` as handled. Events raised since then keep it
    /// pending.
    pub fn done(&self, entry: EntryId, seen: u64) {
        if entry.index() < self.capacity {
            self.words.store_release(self.done_word(entry.index()), seen);
        }
    }
}

impl Reset for Pending {
    fn reset(&self, entry: EntryId) {
        if entry.index() < self.capacity {
            self.done(entry, self.raised(entry.index()));
        }
    }
}

/// Lane's side of pending events.
#[derive(Clone, Debug)]
pub struct LanePending {
    words: SharedWords,
    capacity: usize,
    first: usize,
}

impl LanePending {
    /// Raises an event of an entry that was looked up in this turn. A slow path that sees the event
    /// also sees what the lane wrote to lane state before.
    #[inline]
    pub fn raise(&self, entry: EntryId) {
        if entry.index() < self.capacity {
            let word = self.first + entry.index();
            self.words.store_release(word, self.words.load(word).wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(pending: &Pending) -> Vec<(EntryId, u64)> {
        let mut all = Vec::new();
        pending.scan(|entry, seen| all.push((entry, seen)));
        all
    }

    #[test]
    fn what_was_raised_is_pending_until_it_is_done() {
        let memory = Spec::pending("events", 10, 2).create().unwrap();
        let pending = Pending::attach(&memory).unwrap();
        let lanes = [pending.lane(0), pending.lane(1)];
        assert_eq!(scan(&pending), []);
        lanes[0].raise(EntryId(3));
        lanes[1].raise(EntryId(3));
        lanes[1].raise(EntryId(9));
        lanes[1].raise(EntryId(10)); // no such entry
        assert_eq!(scan(&pending), [(EntryId(3), 2), (EntryId(9), 1)]);
        let mut some = Vec::new();
        pending.scan_range(4..9, |entry, seen| some.push((entry, seen)));
        pending.scan_range(9..99, |entry, seen| some.push((entry, seen)));
        assert_eq!(some, [(EntryId(9), 1)]);
        lanes[0].raise(EntryId(3)); // between scan and done
        pending.done(EntryId(3), 2);
        pending.done(EntryId(9), 1);
        let again = Pending::attach(&memory).unwrap(); // the slow path was restarted
        assert_eq!(scan(&again), [(EntryId(3), 3)]);
        again.reset(EntryId(3));
        assert_eq!(scan(&again), []);
    }
}
