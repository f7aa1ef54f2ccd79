//! Allocation of session indices (UP SEIDs), TEIDs and UE addresses.
//!
//! All state follows from the session records: nothing here is stored, and a successor process
//! rebuilds it.
//!
//! The session index that has been free the longest is taken, in the shard with the fewest
//! sessions. The lower 8 bits of an index are its shard, which belongs to one lane. A freed index
//! is not reused for a while: packets for its old tunnel may be in flight, and a request about its
//! old session may be retransmitted. Its record holds the time since when it is free.
//!
//! An index starts with an unpredictable generation of TEIDs and counts up across all its sessions.
//! So a TEID is reused only after all others of its index; the record holds the count. Additional
//! tunnels of a session take further generations. They are found in the exact table, but no other
//! session can get them.
//!
//! Memory: four bytes per index, and a few per shard.

use std::hash::{BuildHasher, RandomState};

use crate::rules::layout::key::TeidLayout;
use crate::session::SessionIndex;
use crate::store::Store;

mod ue_address;

pub use ue_address::{Addresses, Family};

const SHARDS: usize = 256;
const NONE: u32 = u32::MAX;

/// Free session indices.
#[derive(Debug)]
pub struct SessionIndices {
    /// By index: the one that was freed after it.
    after: Vec<u32>,
    shards: Vec<Shard>,
    live: u32,
    /// Time before which no index can be reused, as far as known.
    none_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Shard {
    first: u32,
    last: u32,
    live: u32,
}

impl SessionIndices {
    /// Creates the free lists from the sessions of a store.
    #[must_use]
    pub fn open(store: &Store) -> Self {
        let capacity = store.capacity();
        let shards = vec![Shard { first: NONE, last: NONE, live: 0 }; SHARDS];
        let after = vec![NONE; capacity as usize];
        let mut this = Self { after, shards, live: 0, none_before: 0 };
        let mut free = Vec::with_capacity(capacity as usize);
        for place in 0..capacity {
            match store.record(SessionIndex(place)).map(|record| record.gone_at()) {
                Some(None) => this.count(SessionIndex(place)),
                Some(Some(at)) => free.push((at, place)),
                None => free.push((0, place)),
            }
        }
        free.sort_unstable();
        free.iter().for_each(|(_, place)| this.append(*place));
        this
    }

    /// Returns the number of sessions.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Returns the number of sessions in each shard.
    pub fn by_shard(&self) -> impl Iterator<Item = u32> {
        self.shards.iter().map(|shard| shard.live)
    }

    /// Takes an index that was freed before `until`, in nanoseconds of `CLOCK_MONOTONIC`. Returns
    /// `None` if there is none.
    pub fn take(&mut self, store: &Store, until: u64) -> Option<SessionIndex> {
        if until <= self.none_before {
            return None;
        }
        let mut is_unripe = [false; SHARDS];
        let mut soonest = u64::MAX;
        loop {
            let has_some =
                |(number, shard): &(usize, &Shard)| shard.first != NONE && !is_unripe[*number];
            let shards = self.shards.iter().enumerate().filter(has_some);
            let Some((number, shard)) = shards.min_by_key(|(_, shard)| shard.live) else {
                self.none_before = if soonest == u64::MAX { 0 } else { soonest };
                return None;
            };
            let place = shard.first;
            let gone = store.record(SessionIndex(place)).and_then(|record| record.gone_at());
            match gone.filter(|gone| *gone >= until) {
                Some(gone) => {
                    soonest = soonest.min(gone);
                    is_unripe[number] = true;
                }
                None => return Some(self.remove_first(number)),
            }
        }
    }

    fn remove_first(&mut self, number: usize) -> SessionIndex {
        let shard = &mut self.shards[number];
        let place = shard.first;
        shard.first = self.after[place as usize];
        if shard.first == NONE {
            shard.last = NONE;
        }
        self.count(SessionIndex(place));
        SessionIndex(place)
    }

    fn count(&mut self, id: SessionIndex) {
        self.shards[id.0 as usize % SHARDS].live += 1;
        self.live += 1;
    }

    /// Returns an unused index that [`take`](Self::take) gave out. It becomes the first again.
    pub fn untake(&mut self, id: SessionIndex) {
        self.none_before = 0;
        let shard = &mut self.shards[id.0 as usize % SHARDS];
        self.after[id.0 as usize] = shard.first;
        if shard.first == NONE {
            shard.last = id.0;
        }
        shard.first = id.0;
        shard.live -= 1;
        self.live -= 1;
    }

    /// Frees the index of a session whose record is a tombstone.
    pub fn give_back(&mut self, id: SessionIndex) {
        self.shards[id.0 as usize % SHARDS].live -= 1;
        self.live -= 1;
        self.append(id.0);
    }

    fn append(&mut self, place: u32) {
        self.after[place as usize] = NONE;
        let shard = &mut self.shards[place as usize % SHARDS];
        match shard.last {
            NONE => shard.first = place,
            last => self.after[last as usize] = place,
        }
        shard.last = place;
    }
}

/// Returns the generation of an index that was never used.
#[must_use]
pub fn first_generation(id: SessionIndex) -> u32 {
    // The standard library's hasher has a random key from the kernel.
    RandomState::new().hash_one(id.0) as u32
}

/// Returns the next free TEID of an index, neither 0 nor all ones (TS 29.281 clause 5.1). Returns
/// `None` if TEIDs chosen by the control plane occupy all of them.
pub fn next_teid(
    shape: TeidLayout,
    id: SessionIndex,
    generation: &mut u32,
    is_taken: impl Fn(u32) -> bool,
) -> Option<u32> {
    let tries = shape.generations().min(1 << 16);
    (0..tries).find_map(|_| {
        let teid = shape.teid(id, *generation);
        *generation = generation.wrapping_add(1);
        Some(teid).filter(|teid| !matches!(*teid, 0 | u32::MAX) && !is_taken(*teid))
    })
}

#[cfg(test)]
mod tests;
