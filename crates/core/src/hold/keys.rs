//! Which keys have packets in the hold area.

/// No key: one has 24 bits.
const NOBODY: u32 = u32::MAX;

/// What is held under one key: a list of slots, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    /// Packets with a lower number shall be shown again; 0 when none shall.
    pub(super) until: u64,
}

const EMPTY: Entry = Entry { key: NOBODY, first: 0, last: 0, count: 0, until: 0 };

/// Entries by key: open addressing with linear probing, at most half full, of fixed size.
#[derive(Debug)]
pub(super) struct Keys {
    entries: Box<[Entry]>,
    mask: usize,
    shift: u32,
}

impl Keys {
    /// For at most `most` keys at a time, and one more for a moment.
    pub(super) fn new(most: usize) -> Self {
        let places = (2 * (most + 1)).next_power_of_two();
        let shift = u32::BITS - places.trailing_zeros();
        Self { entries: vec![EMPTY; places].into(), mask: places - 1, shift }
    }

    /// Where a key's search begins: the upper bits of a product (Knuth, volume 3, section 6.4).
    #[inline]
    fn home(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    /// Where the key is, or else the free place that its search ends at.
    #[inline]
    fn search(&self, key: u32) -> usize {
        let mut at = self.home(key);
        while self.entries[at].key != key && self.entries[at].key != NOBODY {
            at = (at + 1) & self.mask;
        }
        at
    }

    /// Where the key is, if anything is held under it.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<usize> {
        let at = self.search(key);
        (self.entries[at].key == key).then_some(at)
    }

    /// Where the key is, or is from now on, with nothing held.
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

    /// How many places there are for keys.
    pub(super) fn places(&self) -> usize {
        self.entries.len()
    }

    /// The key in a place, if there is one.
    pub(super) fn key(&self, at: usize) -> Option<u32> {
        Some(self.entries[at].key).filter(|key| *key != NOBODY)
    }

    /// Frees a place; those behind it move up, as far as their searches come by.
    pub(super) fn remove(&mut self, at: usize) {
        let (mut hole, mut next) = (at, at);
        loop {
            next = (next + 1) & self.mask;
            if self.entries[next].key == NOBODY {
                break;
            }
            let home = self.home(self.entries[next].key);
            let from_home = next.wrapping_sub(home) & self.mask;
            let from_hole = next.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
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
        fn it_is_a_map(steps in proptest::collection::vec((0..40_u32, any::<bool>()), 1..400)) {
            // Few places, and keys whose searches begin at the same one: long runs.
            let mut keys = Keys::new(15);
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
                let count = (0..keys.places()).filter_map(|at| keys.key(at)).count();
                prop_assert_eq!(count, model.len());
            }
        }
    }
}
