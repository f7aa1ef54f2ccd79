//! Slots of the flows in the table of the program: a hash table with linear probing, half of which
//! at least is free. The slow path has a copy, so it reads nothing from the kernel.
//!
//! Invariants, after each single write: a program finds each flow whose insertion has returned and
//! whose removal has not begun; what it finds is one flow, whole. Programs write nothing to slots,
//! so a flow may be moved at any time. Its home stays the same.

use std::io;
use std::ops::Range;

use fastlane_mirror::flows::{FlowKey, TierFlow};
use fastlane_table::EntryId;

use crate::encoding::{self, FREE, SlotWords};
use crate::homes::Homes;

/// Number of slots in which a flow may be, as in `bpf/flows.bpf.c`. With half of all slots in use
/// the longest distance is about 30.
pub(crate) const MAX_PROBES: usize = 64;

/// Number of slots for each flow that has room.
const SLOTS_PER_FLOW: usize = 2;

/// Number of slots behind those that a hash may have, so that searches do not wrap around.
const OVERFLOW: usize = MAX_PROBES - 1;

/// Returns the number of slots for directions of flows.
pub(crate) fn slots_for(capacity: usize) -> usize {
    capacity.saturating_mul(SLOTS_PER_FLOW).saturating_add(OVERFLOW)
}

/// Returns the number of slots that a hash may have, of all.
pub(crate) fn first_slots(slots: usize) -> usize {
    slots.saturating_sub(OVERFLOW)
}

/// A change of the tables that the program reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotWrite<'a> {
    /// Number of a slot and its words.
    Slot(usize, &'a SlotWords),
    /// Number of a word of the [homes](Homes) and the word.
    Homes(usize, u64),
}

/// Tables that a predecessor has written.
#[derive(Clone, Debug)]
pub(crate) struct FoundSlots {
    pub(crate) slots: Vec<SlotWords>,
    pub(crate) homes: Vec<u64>,
}

/// A flow in a slot.
#[derive(Clone, Copy, Debug)]
struct PlacedFlow {
    flow: TierFlow,
    serial: u32,
}

/// The slots.
#[derive(Debug)]
pub(crate) struct Slots {
    seed: u64,
    /// Entry of the flow in each slot.
    slots: Vec<Option<EntryId>>,
    homes: Homes,
    /// Flows by their entries.
    flows: Vec<Option<PlacedFlow>>,
}

impl Slots {
    /// Creates slots for directions of flows, all of them free.
    pub(crate) fn new(seed: u64, capacity: usize) -> Self {
        let count = slots_for(capacity);
        let homes = Homes::new(first_slots(count));
        Self { seed, slots: vec![None; count], homes, flows: vec![None; capacity] }
    }

    /// Takes over slots that a predecessor has written. It may have been killed between two writes:
    /// `write` gets what must be changed.
    ///
    /// # Errors
    /// Returns the first error of `write`.
    pub(crate) fn take_over(
        seed: u64,
        capacity: usize,
        found: &FoundSlots,
        mut write: impl FnMut(SlotWrite<'_>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut slots = Self::new(seed, capacity);
        // In this order each flow finds its slot again, as those before it are taken.
        for (flow, serial) in found.slots.iter().filter_map(encoding::flow_of) {
            let is_known = slots.position(&flow.key).is_some();
            let has_entry = slots.flows.get(flow.entry.index()).is_some_and(Option::is_none);
            if !is_known && has_entry {
                slots.insert(&flow, serial, |_| Ok(()))?;
            }
        }
        for (index, words) in found.slots.iter().enumerate() {
            let wanted = slots.words(index);
            if *words != wanted {
                write(SlotWrite::Slot(index, &wanted))?;
            }
        }
        for (index, (word, wanted)) in found.homes.iter().zip(slots.homes.words()).enumerate() {
            if word != wanted {
                write(SlotWrite::Homes(index, *wanted))?;
            }
        }
        Ok(slots)
    }

    /// Returns all flows.
    pub(crate) fn flows(&self) -> impl Iterator<Item = &TierFlow> {
        self.flows.iter().flatten().map(|placed| &placed.flow)
    }

    /// Returns the serial number of the flow with an entry.
    pub(crate) fn serial(&self, entry: EntryId) -> Option<u32> {
        Some(self.flows.get(entry.index())?.as_ref()?.serial)
    }

    /// Returns the greatest serial number of a present flow.
    pub(crate) fn last_serial(&self) -> u32 {
        self.flows.iter().flatten().map(|placed| placed.serial).max().unwrap_or(0)
    }

    /// Returns the key of the flow with an entry.
    pub(crate) fn key(&self, entry: EntryId) -> Option<FlowKey> {
        Some(self.flows.get(entry.index())?.as_ref()?.flow.key)
    }

    /// Returns the words of a slot.
    fn words(&self, index: usize) -> SlotWords {
        let entry = self.slots.get(index).copied().flatten();
        let placed = entry.and_then(|entry| self.flows.get(entry.index())?.as_ref());
        placed.map_or(FREE, |placed| encoding::slot_words(&placed.flow, placed.serial))
    }

    fn first(&self, key: &FlowKey) -> usize {
        encoding::first_slot(key, self.seed, first_slots(self.slots.len()))
    }

    /// Returns the slots in which the flow of a key may be.
    fn candidates(&self, key: &FlowKey) -> Range<usize> {
        let first = self.first(key);
        first..first + MAX_PROBES
    }

    /// Returns the slot of a key.
    fn position(&self, key: &FlowKey) -> Option<usize> {
        for index in self.candidates(key) {
            let entry = (*self.slots.get(index)?)?;
            if self.key(entry) == Some(*key) {
                return Some(index);
            }
        }
        None
    }

    /// Adds a flow, instead of those that have its key or its entry. Returns false if it finds no
    /// slot: Linux handles it then.
    ///
    /// # Errors
    /// Returns the error of `write`. The flow is not in the table then.
    pub(crate) fn replace(
        &mut self,
        flow: &TierFlow,
        serial: u32,
        mut write: impl FnMut(SlotWrite<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.remove(&flow.key, &mut write)?;
        if let Some(key) = self.key(flow.entry) {
            self.remove(&key, &mut write)?;
        }
        self.insert(flow, serial, write)
    }

    /// Adds a flow, whose key and entry are not in the table. Returns false if it finds no slot:
    /// Linux handles it then.
    ///
    /// # Errors
    /// Returns the error of `write`. The flow is not in the table then.
    pub(crate) fn insert(
        &mut self,
        flow: &TierFlow,
        serial: u32,
        mut write: impl FnMut(SlotWrite<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        let free = self.candidates(&flow.key).find(|index| self.slots.get(*index) == Some(&None));
        let home = self.first(&flow.key);
        let place = self.flows.get_mut(flow.entry.index());
        let (Some(index), Some(place)) = (free, place) else { return Ok(false) };
        self.homes.set(home, true, |word, bits| write(SlotWrite::Homes(word, bits)))?;
        write(SlotWrite::Slot(index, &encoding::slot_words(flow, serial)))?;
        *place = Some(PlacedFlow { flow: *flow, serial });
        self.slots[index] = Some(flow.entry);
        Ok(true)
    }

    /// Removes a flow, if it is in the table. Flows behind it that are not in their first slots are
    /// moved up, so that no free slot is before them.
    ///
    /// # Errors
    /// Returns the error of `write`, with a flow that is in two slots.
    pub(crate) fn remove(
        &mut self,
        key: &FlowKey,
        mut write: impl FnMut(SlotWrite<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(mut hole) = self.position(key) else { return Ok(()) };
        let (removed, home) = (self.slots[hole], self.first(key));
        let mut next = hole + 1;
        while let Some(Some(entry)) = self.slots.get(next).copied() {
            // A flow whose first slot is behind the hole stays.
            if self.key(entry).is_some_and(|key| self.first(&key) <= hole) {
                write(SlotWrite::Slot(hole, &self.words(next)))?;
                self.slots[hole] = Some(entry);
                hole = next;
            }
            next += 1;
        }
        write(SlotWrite::Slot(hole, &FREE))?;
        self.slots[hole] = None;
        if let Some(entry) = removed {
            self.flows[entry.index()] = None;
        }
        let is_home = self.is_home(home);
        self.homes.set(home, is_home, |word, bits| write(SlotWrite::Homes(word, bits)))
    }

    /// Returns true if the hash of some flow names a slot.
    fn is_home(&self, slot: usize) -> bool {
        let behind = self.slots.get(slot..).unwrap_or_default().iter().map_while(|entry| *entry);
        behind.filter_map(|entry| self.key(entry)).any(|key| self.first(&key) == slot)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use fastlane_mirror::flows::FlowRecord;
    use proptest::prelude::*;

    use super::*;

    /// Number of flows that the slots have room for. So few that they meet.
    const CAPACITY: usize = 24;

    fn flow(port: u16, entry: u32) -> TierFlow {
        let (source, destination) = ([1; 16], [2; 16]);
        let ports = [port, 53];
        let key = FlowKey { source, destination, ports, zone: 0, protocol: 17, version: 4 };
        let record =
            FlowRecord { source, destination, ports, differences: [0; 2], id: entry, is_reply: 0 };
        TierFlow { key, record, entry: EntryId(entry) }
    }

    /// Creates free tables.
    fn free_tables() -> FoundSlots {
        let count = slots_for(CAPACITY);
        let homes = Homes::new(first_slots(count)).words().to_vec();
        FoundSlots { slots: vec![FREE; count], homes }
    }

    /// Applies a write to tables.
    fn apply(tables: &mut FoundSlots, write: SlotWrite<'_>) {
        match write {
            SlotWrite::Slot(index, words) => tables.slots[index] = *words,
            SlotWrite::Homes(index, word) => tables.homes[index] = word,
        }
    }

    /// Returns true if the tables say that some flow has a home.
    fn has_home(tables: &FoundSlots, slot: usize) -> bool {
        tables.homes[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// Returns the flow that a program finds.
    fn found(tables: &FoundSlots, seed: u64, key: &FlowKey) -> Option<(TierFlow, u32)> {
        let first = encoding::first_slot(key, seed, first_slots(tables.slots.len()));
        if !has_home(tables, first) {
            return None;
        }
        for words in &tables.slots[first..first + MAX_PROBES] {
            if !encoding::is_taken(words) {
                return None;
            }
            let flow = encoding::flow_of(words).expect("it is written at once here");
            if flow.0.key == *key {
                return Some(flow);
            }
        }
        None
    }

    /// Tables of the kernel, with what is to be found in them.
    struct Model {
        tables: FoundSlots,
        flows: HashMap<FlowKey, (TierFlow, u32)>,
    }

    impl Model {
        /// Applies a write, after which all flows are to be found.
        fn write(&mut self, seed: u64, write: SlotWrite<'_>) -> io::Result<()> {
            apply(&mut self.tables, write);
            for (key, flow) in &self.flows {
                assert_eq!(found(&self.tables, seed, key), Some(*flow));
            }
            Ok(())
        }

        /// Returns the number of slots that have a flow.
        fn taken(&self) -> usize {
            self.tables.slots.iter().filter(|words| encoding::is_taken(words)).count()
        }

        /// Returns true if the homes are those of the flows, and no others.
        fn has_exact_homes(&self, seed: u64) -> bool {
            let count = first_slots(self.tables.slots.len());
            let homes: HashSet<usize> =
                self.flows.keys().map(|key| encoding::first_slot(key, seed, count)).collect();
            (0..count).all(|slot| has_home(&self.tables, slot) == homes.contains(&slot))
        }
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, u16, u32)>> {
        prop::collection::vec((any::<bool>(), 0_u16..40, 0..CAPACITY as u32), 1..200)
    }

    proptest! {
        #[test]
        fn a_program_finds_each_flow_after_each_write(seed: u64, changes in changes()) {
            let mut slots = Slots::new(seed, CAPACITY);
            let mut model = Model { tables: free_tables(), flows: HashMap::new() };
            for (serial, (adds, port, entry)) in (1..).zip(changes) {
                let flow = flow(port, entry);
                let entries = slots.key(flow.entry);
                if adds && slots.position(&flow.key).is_none() && entries.is_none() {
                    let write = |write: SlotWrite<'_>| model.write(seed, write);
                    prop_assert!(slots.insert(&flow, serial, write).unwrap());
                    model.flows.insert(flow.key, (flow, serial));
                } else if !adds {
                    model.flows.remove(&flow.key);
                    let write = |write: SlotWrite<'_>| model.write(seed, write);
                    slots.remove(&flow.key, write).unwrap();
                    prop_assert_eq!(found(&model.tables, seed, &flow.key), None);
                }
                prop_assert_eq!(model.taken(), model.flows.len());
                prop_assert!(model.has_exact_homes(seed));
                for (flow, serial) in model.flows.values() {
                    prop_assert_eq!(slots.serial(flow.entry), Some(*serial));
                }
            }
        }

        #[test]
        fn a_successor_takes_over_what_a_kill_has_left(
            seed: u64,
            ports in prop::collection::hash_set(0_u16..200, 1..CAPACITY),
            after in 0_usize..4,
        ) {
            let mut slots = Slots::new(seed, CAPACITY);
            let mut tables = free_tables();
            for (entry, port) in (0..).zip(&ports) {
                let write = |write: SlotWrite<'_>| {
                    apply(&mut tables, write);
                    Ok(())
                };
                slots.insert(&flow(*port, entry), entry + 1, write).unwrap();
            }
            // Whole tables are adopted without a write.
            let unchanged = |_: SlotWrite<'_>| panic!("there is nothing to change");
            let adopted = Slots::take_over(seed, CAPACITY, &tables, unchanged).unwrap();
            prop_assert_eq!(&adopted.slots, &slots.slots);
            // It is killed after a few writes of a removal.
            let removed = flow(*ports.iter().next().unwrap(), 0);
            let mut left = after;
            let _ = slots.remove(&removed.key, |write| {
                left = left.checked_sub(1).ok_or(io::ErrorKind::Interrupted)?;
                apply(&mut tables, write);
                Ok(())
            });
            let before = tables.clone();
            let write = |write: SlotWrite<'_>| {
                apply(&mut tables, write);
                Ok(())
            };
            let mut adopted = Slots::take_over(seed, CAPACITY, &before, write).unwrap();
            let rest = (0..).zip(&ports).skip(1).map(|(entry, port)| flow(*port, entry));
            for flow in rest {
                prop_assert_eq!(
                    found(&tables, seed, &flow.key),
                    Some((flow, flow.entry.0 + 1))
                );
                adopted.remove(&flow.key, |_| Ok(())).unwrap();
            }
            adopted.remove(&removed.key, |_| Ok(())).unwrap();
            prop_assert!(adopted.slots.iter().all(Option::is_none));
            prop_assert!(adopted.homes.words().iter().all(|word| *word == 0));
        }
    }

    #[test]
    fn a_flow_without_a_slot_is_linuxs() {
        let mut slots = Slots::new(1, 2);
        slots.slots = vec![Some(EntryId(0)); slots_for(2)];
        let inserted = slots.insert(&flow(1, 1), 1, |_| panic!("there is no free slot"));
        assert!(!inserted.unwrap());
        // So is one whose entry the tier does not have.
        let mut slots = Slots::new(1, 2);
        assert!(!slots.insert(&flow(1, 2), 1, |_| panic!("it is none of ours")).unwrap());
    }
}
