//! Heartbeat schedule (TS 29.244 clause 6.2.2).

use std::collections::{BTreeSet, HashMap};

use crate::time::Now;

/// Heartbeat schedule of all associations, by association index.
#[derive(Debug)]
pub struct Heartbeats {
    period: u64,
    due: BTreeSet<(u64, u16)>,
    places: HashMap<u16, Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    due: u64,
    is_asked: bool,
}

impl Heartbeats {
    /// Creates a schedule with one heartbeat per peer every `period` nanoseconds.
    #[must_use]
    pub fn new(period: u64) -> Self {
        Self { period: period.max(1), due: BTreeSet::new(), places: HashMap::new() }
    }

    /// Starts heartbeats to a peer. The first one is due after one period.
    pub fn begin(&mut self, now: Now, place: u16) {
        self.end(place);
        let due = now.monotonic.saturating_add(self.period);
        self.places.insert(place, Beat { due, is_asked: false });
        self.due.insert((due, place));
    }

    /// Stops heartbeats to a peer.
    pub fn end(&mut self, place: u16) {
        if let Some(beat) = self.places.remove(&place) {
            self.due.remove(&(beat.due, place));
        }
    }

    /// Notes that the current heartbeat was answered or given up.
    pub fn is_over(&mut self, place: u16) {
        if let Some(beat) = self.places.get_mut(&place) {
            beat.is_asked = false;
        }
    }

    /// Returns a peer whose heartbeat is due; call it until it returns `None`. A peer with a
    /// pending heartbeat is skipped for one period.
    pub fn next(&mut self, now: Now) -> Option<u16> {
        loop {
            let &(due, place) = self.due.first()?;
            if due > now.monotonic {
                return None;
            }
            self.due.pop_first();
            let Some(beat) = self.places.get_mut(&place) else { continue };
            beat.due = now.monotonic.saturating_add(self.period);
            self.due.insert((beat.due, place));
            if !std::mem::replace(&mut beat.is_asked, true) {
                return Some(place);
            }
        }
    }

    /// Returns the time of the next heartbeat.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic: u64) -> Now {
        Now { monotonic, real: 0 }
    }

    #[test]
    fn each_is_asked_once_a_period_and_not_while_it_is_being_asked() {
        let mut beats = Heartbeats::new(100);
        beats.begin(at(0), 3);
        beats.begin(at(50), 4);
        assert_eq!((beats.next(at(99)), beats.deadline()), (None, Some(100)));
        assert_eq!((beats.next(at(100)), beats.next(at(100))), (Some(3), None));
        assert_eq!(beats.next(at(150)), Some(4));
        beats.is_over(4);
        assert_eq!((beats.next(at(200)), beats.next(at(250))), (None, Some(4)));
        beats.is_over(3);
        assert_eq!(beats.next(at(300)), Some(3));
        beats.end(3);
        beats.end(4);
        assert_eq!((beats.next(at(1000)), beats.deadline()), (None, None));
    }
}
