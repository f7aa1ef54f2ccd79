//! Looking into a table without being a lane.

use super::{Bucket, CHAIN, EntryId, HashReader, WAYS, bits, key};
use crate::{Key, Value};

/// How often a copy is tried that the writer came between.
const MAX_TRIES: usize = 100;

/// The writer came between: what was copied may be a mixture.
struct Torn;

impl<K: Key, V: Value> HashReader<K, V> {
    /// A copy of a key's value, with its number, for whoever is no lane and so has no guard: tools,
    /// and the slow path beside the writer. It may have changed since. A key whose value changes
    /// all the time may be missed: a copy is tried so many times and no more.
    #[must_use]
    pub fn copy(&self, key: &K) -> Option<(EntryId, V)> {
        let tries = (0..MAX_TRIES).map(|_| self.try_copy(key));
        tries.filter_map(Result::ok).next().flatten()
    }

    /// Copies of all keys that are there from beginning to end, with their numbers and values, and
    /// of some of those that come or go meanwhile; as [`copy`](Self::copy), for whoever is no lane.
    pub fn copies(&self) -> impl Iterator<Item = (K, EntryId, V)> {
        let ways = |bucket| (0..WAYS).map(move |way| (bucket, way));
        self.buckets.iter().flat_map(ways).filter_map(|(bucket, way)| {
            let tries = (0..MAX_TRIES).map(|_| self.copy_way(bucket, way));
            tries.filter_map(Result::ok).next().flatten()
        })
    }

    fn try_copy(&self, key: &K) -> Result<Option<(EntryId, V)>, Torn> {
        let hash = self.hash(key);
        let mut next = self.bucket(hash);
        for _ in 0..=CHAIN {
            let Some(bucket) = next else { break };
            for way in bits(bucket.matching(key::tag(hash))) {
                match self.copy_way(bucket, way)? {
                    Some((other, entry, value)) if other == *key => {
                        return Ok(Some((entry, value)));
                    }
                    _ => {}
                }
            }
            next = self.linked(bucket.next());
        }
        Ok(None)
    }

    fn copy_way(&self, bucket: &Bucket, way: usize) -> Result<Option<(K, EntryId, V)>, Torn> {
        let slot_ref = bucket.slot_ref(way);
        let copy = self.slots.copy(slot_ref);
        // Still the same: what was copied has been published.
        match copy.filter(|_| bucket.slot_ref(way) == slot_ref) {
            Some((entry, key, value)) if entry < self.capacity => {
                Ok(Some((key, EntryId(entry), value)))
            }
            None if slot_ref != 0 && slot_ref <= self.slots.count() => Err(Torn),
            _ => Ok(None),
        }
    }
}
