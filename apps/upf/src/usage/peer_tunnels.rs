//! Index of sessions by their tunnels at peers. Error indications name a tunnel by address and
//! TEID.
//!
//! The session records are the truth; the index only narrows the search. An entry is a hash and a
//! session index, 8 bytes, and the table is at most 7/8 full: a million sessions with one tunnel
//! take 9.2 MiB. It has this size from the start, because a table that grows leaves its smaller
//! predecessors in the heap. A hash collision only costs another lookup.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::session::{Session, SessionIndex};

/// Maximum number of records read for one error indication.
const LOOKS: usize = 16;
/// Minimum number of slots.
const LEAST: usize = 64;

/// Sessions by tunnel endpoint of the peer.
#[derive(Debug)]
pub(super) struct Remotes {
    /// Hash table with linear probing. 0 is free, else `hash << 32 | session + 1`. The home slot of
    /// an entry is given by the upper bits of its hash.
    slots: Vec<u64>,
    count: usize,
    keys: RandomState,
}

/// Returns the peer tunnels of a session: address and TEID. A peer with addresses of both families
/// is reached by one of them, and counts with both.
pub(super) fn tunnels(session: &Session) -> impl Iterator<Item = (IpAddr, u32)> {
    let ways = session.fars.iter().flat_map(|far| far.forwarding.iter().chain(&far.duplicating));
    ways.filter_map(|way| way.outer).flat_map(|outer| {
        let addresses = [outer.v4.map(IpAddr::V4), outer.v6.map(IpAddr::V6)];
        let teid = outer.teid;
        addresses.into_iter().flatten().filter_map(move |address| Some((address, teid?)))
    })
}

impl Remotes {
    /// Creates an index with room for a tunnel of each of `sessions` sessions. It grows for more.
    #[must_use]
    pub(super) fn new(sessions: u32) -> Self {
        let slots = (sessions as usize * 8).div_ceil(7).max(LEAST);
        Self { slots: vec![0; slots], count: 0, keys: RandomState::new() }
    }

    /// Returns the candidate sessions of a tunnel, each once.
    #[must_use]
    pub(super) fn find(&self, peer: IpAddr, teid: u32) -> Vec<SessionIndex> {
        let hash = self.hash(peer, teid);
        let mut found = Vec::new();
        let mut at = self.home(hash);
        while self.slots[at] != 0 && found.len() < LOOKS {
            let (entry, session) = split(self.slots[at]);
            if entry == hash && !found.contains(&session) {
                found.push(session);
            }
            at = self.after(at);
        }
        found
    }

    /// Replaces the tunnels of the session `before` by those of `after`.
    pub(super) fn change(&mut self, before: Option<&Session>, after: Option<&Session>) {
        let all = |session: Option<&Session>| -> Vec<_> {
            session.map(|session| tunnels(session).collect()).unwrap_or_default()
        };
        let (old, new) = (all(before), all(after));
        if old == new {
            return;
        }
        for (session, list, is_new) in [(before, old, false), (after, new, true)] {
            let Some(session) = session else { continue };
            for (peer, teid) in list {
                let entry = join(self.hash(peer, teid), session.id);
                if is_new { self.insert(entry) } else { self.remove(entry) }
            }
        }
    }

    /// Returns the number of indexed tunnels.
    #[must_use]
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    fn insert(&mut self, entry: u64) {
        if (self.count + 1) * 8 > self.slots.len() * 7 {
            let grown = vec![0; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, grown);
            old.into_iter().filter(|entry| *entry != 0).for_each(|entry| self.place(entry));
        }
        self.place(entry);
        self.count += 1;
    }

    fn place(&mut self, entry: u64) {
        let mut at = self.home(split(entry).0);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = entry;
    }

    /// Removes one such entry and moves displaced entries back.
    fn remove(&mut self, entry: u64) {
        let mut at = self.home(split(entry).0);
        while self.slots[at] != entry {
            if self.slots[at] == 0 {
                return;
            }
            at = self.after(at);
        }
        self.count -= 1;
        let slots = self.slots.len();
        let distance =
            |from: usize, to: usize| if to < from { to + slots - from } else { to - from };
        let mut next = self.after(at);
        while self.slots[next] != 0 {
            let home = self.home(split(self.slots[next]).0);
            if distance(home, next) >= distance(at, next) {
                self.slots[at] = self.slots[next];
                at = next;
            }
            next = self.after(next);
        }
        self.slots[at] = 0;
    }

    fn hash(&self, peer: IpAddr, teid: u32) -> u32 {
        (self.keys.hash_one((peer, teid)) >> 32) as u32
    }

    const fn home(&self, hash: u32) -> usize {
        ((hash as u64 * self.slots.len() as u64) >> 32) as usize
    }

    const fn after(&self, at: usize) -> usize {
        let next = at + 1;
        if next == self.slots.len() { 0 } else { next }
    }
}

const fn join(hash: u32, session: SessionIndex) -> u64 {
    (hash as u64) << 32 | (session.0 as u64 + 1)
}

const fn split(entry: u64) -> (u32, SessionIndex) {
    ((entry >> 32) as u32, SessionIndex((entry as u32).wrapping_sub(1)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    proptest! {
        #[test]
        fn it_finds_what_was_put_in_and_not_taken_out(
            steps in prop::collection::vec((any::<bool>(), 0..40u32, 0..5u32), 1..400),
        ) {
            let (mut remotes, mut model) = (Remotes::new(100), HashSet::new());
            for (is_new, teid, session) in steps {
                let entry = join(remotes.hash(PEER, teid), SessionIndex(session));
                if is_new && model.insert((teid, session)) {
                    remotes.insert(entry);
                } else if !is_new && model.remove(&(teid, session)) {
                    remotes.remove(entry);
                }
            }
            prop_assert_eq!(remotes.len(), model.len());
            for teid in 0..40 {
                let found: HashSet<u32> =
                    remotes.find(PEER, teid).into_iter().map(|it| it.0).collect();
                let wanted = model.iter().filter(|it| it.0 == teid).map(|it| it.1).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn a_hundred_thousand_tunnels_take_little_memory_and_go_again() {
        let mut remotes = Remotes::new(100_000);
        let slots = remotes.slots.len();
        for teid in 0..100_000 {
            let entry = join(remotes.hash(PEER, teid), SessionIndex(teid));
            remotes.insert(entry);
        }
        assert_eq!(remotes.slots.len(), slots, "it does not grow");
        assert!(slots * 8 <= 1 << 20, "{slots} slots");
        assert_eq!(remotes.find(PEER, 77_777), [SessionIndex(77_777)]);
        for teid in 0..100_000 {
            let entry = join(remotes.hash(PEER, teid), SessionIndex(teid));
            remotes.remove(entry);
        }
        assert!(remotes.len() == 0 && remotes.slots.iter().all(|slot| *slot == 0));
    }
}
