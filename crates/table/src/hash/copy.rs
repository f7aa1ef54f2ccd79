//! Copies out of a hash table, for readers that are no lane.

use super::{Bucket, CHAIN, HashReader, WAYS, bits, tag_of};
use crate::{EntryId, Key, Value};

/// Maximum number of attempts to copy an entry while the writer keeps replacing it.
const MAX_TRIES: usize = 100;

/// Copy during which the writer changed the slot. Its content may be inconsistent.
struct Torn;

impl<K: Key, V: Value> HashReader<K, V> {
    /// Returns a copy of a key's entry id and value, for readers without a [`Guard`](crate::Guard):
    /// tools, and a slow path that is not the writer. The value may have changed since. A key whose
    /// value changes all the time may be missed, because the number of attempts is limited.
    #[must_use]
    pub fn copy(&self, key: &K) -> Option<(EntryId, V)> {
        let tries = (0..MAX_TRIES).map(|_| self.try_copy(key));
        tries.filter_map(Result::ok).next().flatten()
    }

    /// Returns copies of all entries that exist during the whole iteration, and of some that come
    /// or go meanwhile. For readers without a guard, as [`copy`](Self::copy).
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
            for way in bits(bucket.matching(tag_of(hash))) {
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
        // An unchanged reference proves that the copied slot was published.
        match copy.filter(|_| bucket.slot_ref(way) == slot_ref) {
            Some((entry, key, value)) if entry < self.capacity => {
                Ok(Some((key, EntryId(entry), value)))
            }
            None if slot_ref != 0 && slot_ref <= self.slots.count() => Err(Torn),
            _ => Ok(None),
        }
    }
}
