//! Numbers of sessions by group of slice and DNN, by slice, and by association.

use std::collections::BTreeMap;

use crate::rules::layout::slices::SliceGroup;
use crate::session::SNssai;

/// Numbers of sessions. They follow commits, so they are right before a request is handled.
#[derive(Debug, Default)]
pub(super) struct SessionTally {
    by_group: BTreeMap<SliceGroup, usize>,
    /// Also of slices whose sessions are in the group of all others.
    by_slice: BTreeMap<SNssai, usize>,
    by_peer: BTreeMap<u16, usize>,
}

/// Group, slice and association of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionOwner {
    pub(super) group: SliceGroup,
    pub(super) slice: Option<SNssai>,
    pub(super) peer: u16,
}

impl SessionTally {
    /// Counts a session whose owner changes, begins or ends.
    pub(super) fn exchange(&mut self, before: Option<SessionOwner>, after: Option<SessionOwner>) {
        if let Some(after) = after {
            *self.by_group.entry(after.group).or_default() += 1;
            *self.by_peer.entry(after.peer).or_default() += 1;
            if let Some(slice) = after.slice {
                *self.by_slice.entry(slice).or_default() += 1;
            }
        }
        if let Some(before) = before {
            take_one(&mut self.by_group, &before.group);
            take_one(&mut self.by_peer, &before.peer);
            if let Some(slice) = before.slice {
                take_one(&mut self.by_slice, &slice);
            }
        }
    }

    pub(super) fn of_group(&self, group: SliceGroup) -> usize {
        self.by_group.get(&group).copied().unwrap_or(0)
    }

    pub(super) fn of_slice(&self, slice: SNssai) -> usize {
        self.by_slice.get(&slice).copied().unwrap_or(0)
    }

    pub(super) fn of_peer(&self, peer: u16) -> usize {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}
