//! Neighbours that Linux is asked to confirm or to find, one after the other.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound;

use super::model::NeighbourId;

/// Neighbours that wait for a probe. They are taken in turn, so that none starves while others come
/// again.
#[derive(Debug, Default)]
pub(super) struct WaitingNeighbours {
    waiting: BTreeSet<NeighbourId>,
    /// The one that was taken last.
    last: Option<NeighbourId>,
}

impl WaitingNeighbours {
    /// Adds a neighbour, or removes it if it need not wait.
    pub(super) fn set(&mut self, neighbour: NeighbourId, must_wait: bool) {
        if must_wait {
            self.waiting.insert(neighbour);
        } else {
            self.waiting.remove(&neighbour);
        }
    }

    /// Removes all neighbours.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns true if no neighbour waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the next neighbour on an interface in use. Others go on waiting.
    pub(super) fn take_next(&mut self, is_in_use: impl Fn(u32) -> bool) -> Option<NeighbourId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.find(after, &is_in_use);
        let next = next.or_else(|| self.find(Bound::Unbounded, &is_in_use))?;
        self.waiting.remove(&next);
        self.last = Some(next);
        Some(next)
    }

    fn find(
        &self,
        mut from: Bound<NeighbourId>,
        is_in_use: impl Fn(u32) -> bool,
    ) -> Option<NeighbourId> {
        loop {
            let found = *self.waiting.range((from, Bound::Unbounded)).next()?;
            if is_in_use(found.link) {
                return Some(found);
            }
            let (link, address) = (found.link.checked_add(1)?, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            from = Bound::Included(NeighbourId { link, address }); // the lowest of the next one
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(link: u32, last: u8) -> NeighbourId {
        NeighbourId { link, address: [10, 0, 0, last].into() }
    }

    #[test]
    fn none_starves_while_others_become_stale_again() {
        let mut stale = WaitingNeighbours::default();
        (1..=5).for_each(|last| stale.set(id(1, last), true));
        let mut taken = Vec::new();
        for _ in 0..10 {
            let next = stale.take_next(|_| true).unwrap();
            taken.push(next);
            stale.set(next, true);
        }
        let turn: Vec<NeighbourId> = (1..=5).map(|last| id(1, last)).collect();
        assert_eq!(taken, [&turn[..], &turn].concat());
    }

    #[test]
    fn those_of_an_interface_that_is_not_in_use_wait() {
        let mut stale = WaitingNeighbours::default();
        for link in 1..=3 {
            (1..=2).for_each(|last| stale.set(id(link, last), true));
        }
        let mut take = |used: &[u32]| stale.take_next(|link| used.contains(&link));
        assert_eq!(take(&[3]), Some(id(3, 1)));
        assert_eq!(take(&[1, 3]), Some(id(3, 2)));
        assert_eq!(take(&[1, 3]), Some(id(1, 1)));
        assert_eq!(take(&[3]), None);
        assert_eq!(take(&[1, 2]), Some(id(1, 2)));
        assert_eq!(take(&[1, 2]), Some(id(2, 1)));
        assert!(!stale.is_empty());
        stale.set(id(2, 2), false);
        assert!(stale.is_empty());
    }
}
