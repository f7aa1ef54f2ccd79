//! End markers that are due: lanes are told of them until one has sent them.
//!
//! A lane sends the end marker of a session when it is told that the session's rules have changed,
//! and notes that in its state. That message may be lost, the far end's neighbour may not be known
//! yet, and the process that sent the message may be another one by now. So whether a marker was
//! sent is looked up in the lane's state, and the lane is told again for some time.

use std::collections::{BTreeSet, HashMap};

use super::Outbox;
use crate::rules::publish::Published;
use crate::session::SessionId;
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};

/// After that it is looked for the first time, and lanes are told again; then after twice as long.
const FIRST: u64 = 20 * MILLISECOND;
/// The longest time between two looks.
const LONGEST: u64 = SECOND;
/// For how long lanes are told: a base station that cannot be reached then has no use for it.
const PATIENCE: u64 = 10 * SECOND;
/// The most that are looked after at a time; of others lanes are told once.
pub const MOST: usize = 65_536;
/// The most that are looked at in a call.
const BURST: usize = 1024;

/// All that are due.
#[derive(Debug, Default)]
pub struct Markers {
    due: HashMap<SessionId, Due>,
    order: BTreeSet<(u64, SessionId)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    /// When it is looked at next, as in the order.
    at: u64,
    /// How long after that the next look is.
    pause: u64,
    /// When it is given up.
    until: u64,
    /// Lower bits of the version in which it became due.
    version: u32,
}

/// The version of the marker of a session that no lane has sent yet.
fn due(published: &Published, id: SessionId) -> Option<u32> {
    let marker = published.rules(id)?.marker()?;
    (!marker.is_sent(published.marker(id))).then_some(marker.version)
}

impl Markers {
    /// A session was published, or was found at the start. Lanes are told by the caller, if it is
    /// new.
    pub fn changed(&mut self, published: &Published, id: SessionId, now: Now) {
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

    fn keep(&mut self, id: SessionId, due: Due) {
        self.due.insert(id, due);
        self.order.insert((due.at, id));
    }

    fn forget(&mut self, id: SessionId) {
        if let Some(due) = self.due.remove(&id) {
            self.order.remove(&(due.at, id));
        }
    }

    /// Tells lanes of those that are still due; how many were given up.
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

    /// When [`tick`](Self::tick) has something to do, not sooner than in a millisecond.
    #[must_use]
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let (at, _) = self.order.first()?;
        Some((*at).max(now.monotonic.saturating_add(MILLISECOND)))
    }

    /// How many are due.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}
