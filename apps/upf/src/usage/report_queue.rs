//! Sessions whose reports wait for room: their peer already has the maximum number of pending
//! requests.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crate::session::SessionIndex;

/// Waiting sessions by peer, in the order of their arrival, each once.
///
/// Memory: one bit per session index, and 4 octets per waiting session.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_peer: BTreeMap<SocketAddr, VecDeque<SessionIndex>>,
    is_in: Vec<u64>,
}

impl Parked {
    /// Creates an empty set for `capacity` session indices.
    pub(super) fn new(capacity: u32) -> Self {
        Self { by_peer: BTreeMap::new(), is_in: vec![0; capacity.div_ceil(64) as usize] }
    }

    /// Returns true if a session waits.
    pub(super) fn has(&self, id: SessionIndex) -> bool {
        let word = self.is_in.get(id.0 as usize / 64);
        word.is_some_and(|word| word >> (id.0 % 64) & 1 == 1)
    }

    /// Adds a session that waits for room at a peer.
    pub(super) fn add(&mut self, peer: SocketAddr, id: SessionIndex) {
        if self.has(id) {
            return;
        }
        if let Some(word) = self.is_in.get_mut(id.0 as usize / 64) {
            *word |= 1 << (id.0 % 64);
            self.by_peer.entry(peer).or_default().push_back(id);
        }
    }

    /// Returns the next peer after `after`, or the first, with a waiting session and `has_room`.
    pub(super) fn next(
        &self,
        after: Option<SocketAddr>,
        has_room: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let all = || self.by_peer.keys().copied();
        let later = all().find(|peer| Some(*peer) > after && has_room(*peer));
        later.or_else(|| all().find(|peer| has_room(*peer)))
    }

    /// Takes the session that has waited longest for a peer.
    pub(super) fn take(&mut self, peer: SocketAddr) -> Option<SessionIndex> {
        let waiting = self.by_peer.get_mut(&peer)?;
        let id = waiting.pop_front();
        if waiting.is_empty() {
            self.by_peer.remove(&peer);
        }
        let word = id.and_then(|id| self.is_in.get_mut(id.0 as usize / 64));
        if let (Some(id), Some(word)) = (id, word) {
            *word &= !(1 << (id.0 % 64));
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_take_turns_and_each_session_is_there_once() {
        let mut parked = Parked::new(100);
        let peer = |host| SocketAddr::from(([10, 0, 0, host], 8805));
        for id in [5, 7, 5, 500, 9] {
            parked.add(peer(1), SessionIndex(id));
        }
        parked.add(peer(2), SessionIndex(6));
        parked.add(peer(2), SessionIndex(7));
        let mut taken = Vec::new();
        let mut last = None;
        while let Some(next) = parked.next(last, |_| true) {
            taken.push(parked.take(next).unwrap().0);
            last = Some(next);
        }
        assert_eq!(taken, [5, 6, 7, 9]);
        assert!((0..100).all(|id| !parked.has(SessionIndex(id))));
        parked.add(peer(1), SessionIndex(5));
        assert_eq!(parked.next(None, |other| other != peer(1)), None);
        assert_eq!(parked.take(peer(2)), None);
    }
}
