//! Index of the keys that have packets in the hold area.

/// Key of a free slot; a hold key has 24 bits.
const NO_KEY: u32 = u32::MAX;

/// Packets of one key: a list of slots, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    /// Packets with a lower serial number are requested; 0 if none are.
    pub(super) until: u64,
}

const EMPTY: Entry = Entry { key: NO_KEY, first: 0, last: 0, count: 0, until: 0 };

/// Hash table of entries by key, of fixed size: open addressing with linear probing, at most half
/// full.
#[derive(Debug)]
pub(super) struct KeyIndex {
    entries: Box<[Entry]>,
    mask: usize,
    shift: u32,
}

impl KeyIndex {
    /// Creates an index for `capacity` keys, and one more for a moment.
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (2 * (capacity + 1)).next_power_of_two();
        let shift = u32::BITS - slots.trailing_zeros();
        Self { entries: vec![EMPTY; slots].into(), mask: slots - 1, shift }
    }

    /// Returns the slot at which the search of a key begins: the upper bits of a product (Knuth,
    /// volume 3, section 6.4).
    #[inline]
    fn search_start(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    /// Returns the slot of the key, or the free slot at which its search ends.
    #[inline]
    fn search(&self, key: u32) -> usize {
        let mut at = self.search_start(key);
        while self.entries[at].key != key && self.entries[at].key != NO_KEY {
            at = (at + 1) & self.mask;
        }
        at
    }

    /// Returns the slot of the key, or `None` if it has no packets.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<usize> {
        let at = self.search(key);
        (self.entries[at].key == key).then_some(at)
    }

    /// Returns the slot of the key, and inserts the key without packets if it is missing.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: u32) -> usize {
        let at = self.search(key);
        self.entries[at].key = key;
        at
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &Entry {
        &self.entries[at]
    }

    #[inline]
    pub(super) fn at(&mut self, at: usize) -> &mut Entry {
        &mut self.entries[at]
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.entries.len()
    }

    /// Returns the key in a slot, or `None` if the slot is free.
    pub(super) fn key(&self, at: usize) -> Option<u32> {
        Some(self.entries[at].key).filter(|key| *key != NO_KEY)
    }

    /// Frees a slot. Entries behind it move up as far as their searches pass it.
    pub(super) fn remove(&mut self, at: usize) {
        let (mut hole, mut next) = (at, at);
        loop {
            next = (next + 1) & self.mask;
            if self.entries[next].key == NO_KEY {
                break;
            }
            let start = self.search_start(self.entries[next].key);
            let from_start = next.wrapping_sub(start) & self.mask;
            let from_hole = next.wrapping_sub(hole) & self.mask;
            if from_start >= from_hole {
                self.entries[hole] = self.entries[next];
                hole = next;
            }
        }
        self.entries[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_is_a_map(
            steps in proptest::collection::vec((0..40_u32, any::<bool>()), 1..400),
        ) {
            // Few slots, and keys whose searches begin at the same one: long probe sequences.
            let mut keys = KeyIndex::new(15);
            let mut model = BTreeMap::new();
            for (number, (key, inserts)) in steps.into_iter().enumerate() {
                let key = (key * 0x10001) & 0x00ff_ffff;
                if inserts && model.len() < 15 {
                    let at = keys.find_or_insert(key);
                    keys.at(at).until = number as u64;
                    model.insert(key, number as u64);
                } else if let Some(at) = keys.find(key) {
                    keys.remove(at);
                    prop_assert!(model.remove(&key).is_some());
                } else {
                    prop_assert!(!model.contains_key(&key));
                }
                for (key, until) in &model {
                    let at = keys.find(*key).unwrap();
                    prop_assert_eq!(keys.at(at).until, *until);
                }
                let count = (0..keys.slots()).filter_map(|at| keys.key(at)).count();
                prop_assert_eq!(count, model.len());
            }
        }
    }
}
