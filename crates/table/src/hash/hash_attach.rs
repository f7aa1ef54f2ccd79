//! Attaches a writer: finds what is in use and repairs the rest.
//!
//! A writer that was killed between two stores leaves at most one defect: an empty overflow bucket
//! that it had not unlinked yet. All other repairs are for damaged memory.

use std::sync::Arc;

use super::hash_writer::{FreeLists, HashWriter};
use super::{CHAIN, HashReader, WAYS, tag_of};
use crate::header::Header;
use crate::slots::{FreeList, SlotWriter};
use crate::{Key, Readers, SharedMemory, Spec, TableError, Value};

impl<K: Key, V: Value> HashWriter<K, V> {
    /// Attaches as the writer of a table. Completes what a killed writer left unfinished. Unused
    /// memory becomes free once the lanes in `readers` have finished a turn.
    ///
    /// # Errors
    /// Returns an error if the memory holds no table of these types, is mapped read-only, or has a
    /// writer already.
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        let expected = Spec::hash::<K, V>("", 1);
        Self::new(Header::expect_writable(memory, 0, &expected)?, readers)
    }

    /// Attaches as the writer of the table with this header, which may lie inside another table.
    pub(crate) fn new(header: Header, readers: &Arc<Readers>) -> Result<Self, TableError> {
        let reader = HashReader::new(header)?;
        let slots = reader.header.writing(SlotWriter::new(reader.slots.clone()))?;
        let Repaired { free, len, changed } = repair(&reader, &slots);
        let (readers, states) = (Arc::clone(readers), Vec::new());
        Ok(Self { reader, slots, readers, states, free, len, repaired: changed })
    }
}

/// Result of a repair.
struct Repaired {
    free: FreeLists,
    len: usize,
    changed: usize,
}

struct Repair<'a, K, V> {
    reader: &'a HashReader<K, V>,
    slots: &'a SlotWriter<K, V>,
    used_slots: Vec<bool>,
    used_entries: Vec<bool>,
    used_overflow: Vec<bool>,
    seen_overflow: Vec<bool>,
    len: usize,
    changed: usize,
}

fn repair<K: Key, V: Value>(reader: &HashReader<K, V>, slots: &SlotWriter<K, V>) -> Repaired {
    let (layout, fresh) = (reader.header.layout, reader.header.fresh);
    let mut repair = Repair {
        reader,
        slots,
        used_slots: vec![false; layout.slots],
        used_entries: vec![false; reader.capacity()],
        used_overflow: vec![false; layout.overflow],
        seen_overflow: vec![false; layout.overflow],
        len: 0,
        changed: 0,
    };
    for number in 0..layout.buckets {
        repair.check_chain(number);
    }
    repair.clear_unlinked();
    let Repair { used_slots, used_entries, used_overflow, len, changed, .. } = repair;
    let free = FreeLists {
        slots: FreeList::attach("slot", &used_slots, fresh),
        entries: FreeList::attach("entry id", &used_entries, fresh),
        overflow: FreeList::attach("overflow bucket", &used_overflow, fresh),
    };
    Repaired { free, len, changed }
}

impl<K: Key, V: Value> Repair<'_, K, V> {
    fn check_chain(&mut self, first: usize) {
        let Some(mut last) = self.reader.buckets.get(first) else { return };
        let mut keys = Vec::new();
        self.check_bucket(first, first, &mut keys);
        let mut links = 0;
        loop {
            let next = last.next();
            let number = (next as usize).wrapping_sub(1);
            let seen = self.seen_overflow.get(number).copied();
            let bucket = self.reader.linked(next).filter(|_| seen == Some(false) && links < CHAIN);
            let Some(bucket) = bucket else {
                if next != 0 {
                    last.set_next(0);
                    self.changed += 1;
                }
                return;
            };
            self.seen_overflow[number] = true;
            self.check_bucket(first, self.reader.header.layout.buckets + number, &mut keys);
            if bucket.is_empty() {
                last.set_next(bucket.next());
                self.changed += 1;
            } else {
                self.used_overflow[number] = true;
                last = bucket;
                links += 1;
            }
        }
    }

    /// Checks the references of bucket `number` in the chain that begins with `first`.
    fn check_bucket(&mut self, first: usize, number: usize, keys: &mut Vec<u32>) {
        let Some(bucket) = self.reader.buckets.get(number) else { return };
        for way in 0..WAYS {
            let slot_ref = bucket.slot_ref(way);
            if slot_ref == 0 {
                continue;
            }
            let Some((entry, tag)) = self.validate(first, slot_ref, keys) else {
                bucket.set_slot_ref(way, 0);
                self.changed += 1;
                continue;
            };
            if bucket.tag(way) != tag {
                bucket.set_tag(way, tag);
                self.changed += 1;
            }
            self.used_slots[slot_ref as usize - 1] = true;
            self.used_entries[entry] = true;
            self.len += 1;
            keys.push(slot_ref);
        }
    }

    /// Returns the entry id and the tag of a reference, or `None` if it is invalid.
    fn validate(&self, first: usize, slot_ref: u32, keys: &[u32]) -> Option<(usize, u16)> {
        let slot = self.slots.at(slot_ref).filter(|_| !self.used_slots[slot_ref as usize - 1])?;
        let entry = slot.entry as usize;
        let hash = self.reader.hash(&slot.to_key()?);
        let here = hash & self.reader.mask == first as u64;
        let known = |other: &u32| self.slots.at(*other).is_some_and(|other| other.key == slot.key);
        let free = self.used_entries.get(entry).is_some_and(|used| !used);
        (here && free && !keys.iter().any(known)).then_some((entry, tag_of(hash)))
    }

    /// Clears the references of buckets that are not linked.
    fn clear_unlinked(&self) {
        let first = self.reader.header.layout.buckets;
        let unlinked = self.used_overflow.iter().enumerate().filter(|(_, used)| !**used);
        for (number, _) in unlinked {
            let Some(bucket) = self.reader.buckets.get(first + number) else { continue };
            for way in (0..WAYS).filter(|way| bucket.slot_ref(*way) != 0) {
                bucket.set_slot_ref(way, 0);
            }
        }
    }
}
