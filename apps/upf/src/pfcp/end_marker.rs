//! Due end markers: lanes are reminded until one of them has sent the marker.
//!
//! A lane sends the end marker of a session when a message tells it that the rules have changed,
//! and notes that in its state. The message may be lost, the neighbour may still be unknown, and
//! the sending process may have been replaced. So this module reads the lane's state and repeats
//! the message for some time.

use std::collections::{BTreeSet, HashMap};

use super::Outbox;
use crate::rules::publish::Published;
use crate::session::SessionIndex;
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};

/// Time until the first check and reminder, in nanoseconds. The interval doubles after each.
const FIRST: u64 = 20 * MILLISECOND;
/// Longest interval between two checks, in nanoseconds.
const LONGEST: u64 = SECOND;
/// Time after which reminders end, in nanoseconds: a gNB that is unreachable for this long has no
/// use for the marker.
const PATIENCE: u64 = 10 * SECOND;
/// Maximum number of tracked markers. For others the lanes are told once.
pub const MOST: usize = 65_536;
/// Maximum number of checks in one call.
const BURST: usize = 1024;

/// Due end markers by session.
#[derive(Debug, Default)]
pub struct Markers {
    due: HashMap<SessionIndex, Due>,
    order: BTreeSet<(u64, SessionIndex)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    /// Time of the next check, as in `order`.
    at: u64,
    /// Interval to the check after the next one.
    pause: u64,
    /// Time at which the marker is given up.
    until: u64,
    /// Lower 32 bits of the session version in which it became due.
    version: u32,
}

/// Returns the version of a session's end marker that no lane has sent yet.
fn due(published: &Published, id: SessionIndex) -> Option<u32> {
    let marker = published.rules(id)?.marker()?;
    (!marker.is_sent(published.marker(id))).then_some(marker.version)
}

impl Markers {
    /// Tracks the end marker of a session that was published or recovered. The caller sends the
    /// first message to the lanes.
    pub fn changed(&mut self, published: &Published, id: SessionIndex, now: Now) {
        let Some(version) = due(published, id) else { return self.forget(id) };
        if self.due.get(&id).is_some_and(|it| it.version == version) {
            return;
        }
        self.forget(id);
        if self.due.len() < MOST {
            let at = now.monotonic.saturating_add(FIRST);
            let until = now.monotonic.saturating_add(PATIENCE);
            self.keep(id, Due { at, pause: 2 * FIRST, until, version });
        }
    }

    fn keep(&mut self, id: SessionIndex, due: Due) {
        self.due.insert(id, due);
        self.order.insert((due.at, id));
    }

    fn forget(&mut self, id: SessionIndex) {
        if let Some(due) = self.due.remove(&id) {
            self.order.remove(&(due.at, id));
        }
    }

    /// Sends reminders for markers that are still due. Returns the number of markers given up.
    pub fn tick(&mut self, published: &Published, now: Now, out: &mut Outbox) -> u64 {
        let mut given_up = 0;
        for _ in 0..BURST {
            let Some(&(at, id)) = self.order.first() else { break };
            if at > now.monotonic {
                break;
            }
            let Some(before) = self.due.get(&id).copied() else { break };
            self.forget(id);
            if due(published, id) != Some(before.version) {
                continue;
            }
            if now.monotonic >= before.until {
                given_up += 1;
                continue;
            }
            out.rules_changed(id);
            let at = now.monotonic.saturating_add(before.pause);
            let pause = (2 * before.pause).min(LONGEST);
            self.keep(id, Due { at, pause, ..before });
        }
        given_up
    }

    /// Returns the time of the next [`tick`](Self::tick), at least one millisecond from now.
    #[must_use]
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let (at, _) = self.order.first()?;
        Some((*at).max(now.monotonic.saturating_add(MILLISECOND)))
    }

    /// Returns the number of due markers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Returns true if no marker is due.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}
