//! Flows in the tables of the program, and their slots: a hash table with linear probing, half of
//! which at least is free. The slow path has a copy, so it reads nothing from the kernel.
//!
//! Invariants, after each single write: a program finds each flow whose insertion has returned and
//! whose removal has not begun; what it finds is one flow, whole. Programs write nothing to slots,
//! so a flow may be moved at any time. Its home stays the same. A flow is written before its slot
//! and stays after it, until another one gets its entry.

use std::io;
use std::ops::Range;

use fastlane_mirror::flows::{FlowKey, TierFlow};
use fastlane_table::EntryId;

use crate::encoding::{self, FlowHash, FlowWords};
use crate::homes::Homes;

/// Number of slots in which a flow may be, as in `bpf/flows.bpf.c`. With half of all slots in use
/// the longest distance is about 30.
pub(crate) const MAX_PROBES: usize = 64;

/// Number of slots for each flow that has room.
const SLOTS_PER_FLOW: usize = 2;

/// Number of slots in a word of the table.
pub(crate) const SLOTS_PER_WORD: usize = 2;

/// Returns the number of slots that the hash of a direction of a flow may have.
pub(crate) fn first_slots(capacity: usize) -> usize {
    capacity.saturating_mul(SLOTS_PER_FLOW)
}

/// Returns the number of slots for directions of flows: those that a hash may have, and as many
/// behind them as a search looks at, so that it does not wrap around.
fn slots_for(capacity: usize) -> usize {
    first_slots(capacity).saturating_add(MAX_PROBES)
}

/// Returns the number of words with the slots for directions of flows.
pub(crate) fn slot_words(capacity: usize) -> usize {
    slots_for(capacity).div_ceil(SLOTS_PER_WORD)
}

/// Returns the slot with an index among words with slots.
pub(crate) fn slot_at(words: &[u64], index: usize) -> Option<u32> {
    let word = words.get(index / SLOTS_PER_WORD)?;
    Some((word >> (index % SLOTS_PER_WORD * 32)) as u32)
}

/// A change of the tables that the program reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotWrite<'a> {
    /// Entry of a flow and its words.
    Flow(EntryId, &'a FlowWords),
    /// Number of a word with slots and the word.
    Slots(usize, u64),
    /// Number of a word of the [homes](Homes) and the word.
    Homes(usize, u64),
}

/// Tables that a predecessor has written.
#[derive(Clone, Debug)]
pub(crate) struct FoundSlots {
    pub(crate) flows: Vec<FlowWords>,
    pub(crate) slots: Vec<u64>,
    pub(crate) homes: Vec<u64>,
}

impl FoundSlots {
    /// Returns the flow in a slot and its serial number; `None` if there is none or it is not
    /// whole.
    fn flow(&self, index: usize) -> Option<(TierFlow, u32)> {
        let entry = encoding::entry_of(slot_at(&self.slots, index)?, self.flows.len())?;
        encoding::flow_of(self.flows.get(entry.index())?, entry)
    }
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
    /// Slots as the program has them.
    slots: Vec<u32>,
    homes: Homes,
    /// Flows by their entries.
    flows: Vec<Option<PlacedFlow>>,
}

impl Slots {
    /// Creates slots for directions of flows, all of them free.
    pub(crate) fn new(seed: u64, capacity: usize) -> Self {
        let homes = Homes::new(first_slots(capacity));
        Self { seed, slots: vec![0; slots_for(capacity)], homes, flows: vec![None; capacity] }
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
        let count = slots.slots.len();
        for (flow, serial) in (0..count).filter_map(|index| found.flow(index)) {
            let is_known = slots.position(&flow.key).is_some();
            let has_entry = slots.flows.get(flow.entry.index()).is_some_and(Option::is_none);
            if !is_known && has_entry {
                slots.insert(&flow, serial, |_| Ok(()))?;
            }
        }
        for (index, word) in found.slots.iter().enumerate() {
            let wanted = slots.word(index);
            if *word != wanted {
                write(SlotWrite::Slots(index, wanted))?;
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

    /// Returns the entry of the flow in a slot; `None` if it is free, or there is no such slot.
    fn entry(&self, index: usize) -> Option<EntryId> {
        encoding::entry_of(*self.slots.get(index)?, self.flows.len())
    }

    /// Returns a word with slots.
    fn word(&self, number: usize) -> u64 {
        let slots = self.slots.iter().skip(number * SLOTS_PER_WORD).take(SLOTS_PER_WORD);
        slots.rev().fold(0, |word, slot| word << 32 | u64::from(*slot))
    }

    /// Sets a slot.
    ///
    /// # Errors
    /// Returns the error of `write`. The slot is unchanged then.
    fn set(
        &mut self,
        index: usize,
        slot: u32,
        write: &mut impl FnMut(SlotWrite<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let number = index / SLOTS_PER_WORD;
        let before = std::mem::replace(&mut self.slots[index], slot);
        let written = write(SlotWrite::Slots(number, self.word(number)));
        if written.is_err() {
            self.slots[index] = before;
        }
        written
    }

    fn hash(&self, key: &FlowKey) -> FlowHash {
        FlowHash::new(key, self.seed)
    }

    fn first(&self, key: &FlowKey) -> usize {
        self.hash(key).first_slot(first_slots(self.flows.len()))
    }

    /// Returns the slots in which the flow of a key may be.
    fn candidates(&self, key: &FlowKey) -> Range<usize> {
        let first = self.first(key);
        first..first + MAX_PROBES
    }

    /// Returns the slot of a key.
    fn position(&self, key: &FlowKey) -> Option<usize> {
        for index in self.candidates(key) {
            if self.key(self.entry(index)?) == Some(*key) {
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
        let free = self.candidates(&flow.key).find(|index| self.slots.get(*index) == Some(&0));
        let home = self.first(&flow.key);
        let (Some(index), true) = (free, flow.entry.index() < self.flows.len()) else {
            return Ok(false);
        };
        self.homes.set(home, true, |word, bits| write(SlotWrite::Homes(word, bits)))?;
        write(SlotWrite::Flow(flow.entry, &encoding::flow_words(flow, serial)))?;
        let slot = self.hash(&flow.key).slot(flow.entry, self.flows.len());
        self.set(index, slot, &mut write)?;
        self.flows[flow.entry.index()] = Some(PlacedFlow { flow: *flow, serial });
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
        let (removed, home) = (self.entry(hole), self.first(key));
        let mut next = hole + 1;
        while let Some(entry) = self.entry(next) {
            // A flow whose first slot is behind the hole stays.
            if self.key(entry).is_some_and(|key| self.first(&key) <= hole) {
                self.set(hole, self.slots[next], &mut write)?;
                hole = next;
            }
            next += 1;
        }
        self.set(hole, 0, &mut write)?;
        if let Some(entry) = removed {
            self.flows[entry.index()] = None;
        }
        let is_home = self.is_home(home);
        self.homes.set(home, is_home, |word, bits| write(SlotWrite::Homes(word, bits)))
    }

    /// Returns true if the hash of some flow names a slot.
    fn is_home(&self, slot: usize) -> bool {
        let behind = (slot..).map_while(|index| self.entry(index));
        behind.filter_map(|entry| self.key(entry)).any(|key| self.first(&key) == slot)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use fastlane_mirror::flows::FlowRecord;
    use proptest::prelude::*;

    use super::*;
    use crate::encoding::NO_FLOW;

    /// Number of flows that the slots have room for. So few that they meet.
    const CAPACITY: usize = 24;

    fn flow(port: u16, entry: u32) -> TierFlow {
        let (source, destination) = ([1; 16], [2; 16]);
        let ports = [port, 53];
        let key = FlowKey { source, destination, ports, zone: 0, protocol: 17, version: 4 };
        let record = FlowRecord { ports, id: entry, ..FlowRecord::between(source, destination) };
        TierFlow { key, record, entry: EntryId(entry) }
    }

    /// Creates free tables.
    fn free_tables() -> FoundSlots {
        let homes = Homes::new(first_slots(CAPACITY)).words().to_vec();
        let flows = vec![NO_FLOW; CAPACITY];
        FoundSlots { flows, slots: vec![0; slot_words(CAPACITY)], homes }
    }

    /// Applies a write to tables.
    fn apply(tables: &mut FoundSlots, write: SlotWrite<'_>) {
        match write {
            SlotWrite::Flow(entry, words) => tables.flows[entry.index()] = *words,
            SlotWrite::Slots(index, word) => tables.slots[index] = word,
            SlotWrite::Homes(index, word) => tables.homes[index] = word,
        }
    }

    /// Returns true if the tables say that some flow has a home.
    fn has_home(tables: &FoundSlots, slot: usize) -> bool {
        tables.homes[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// Returns the flow that a program finds.
    fn found(tables: &FoundSlots, seed: u64, key: &FlowKey) -> Option<(TierFlow, u32)> {
        let hash = FlowHash::new(key, seed);
        let first = hash.first_slot(first_slots(CAPACITY));
        if !has_home(tables, first) {
            return None;
        }
        for index in first..first + MAX_PROBES {
            let slot = slot_at(&tables.slots, index).expect("slots behind the last one");
            let entry = encoding::entry_of(slot, CAPACITY)?;
            let flow = tables.flow(index).expect("it is written at once here");
            if hash.slot(entry, CAPACITY) == slot && flow.0.key == *key {
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
            let slots = (0..slots_for(CAPACITY)).filter_map(|at| slot_at(&self.tables.slots, at));
            slots.filter(|slot| *slot != 0).count()
        }

        /// Returns true if the homes are those of the flows, and no others.
        fn has_exact_homes(&self, seed: u64) -> bool {
            let count = first_slots(CAPACITY);
            let first = |key| FlowHash::new(key, seed).first_slot(count);
            let homes: HashSet<usize> = self.flows.keys().map(first).collect();
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
            prop_assert!(adopted.slots.iter().all(|slot| *slot == 0));
            prop_assert!(adopted.homes.words().iter().all(|word| *word == 0));
        }
    }

    #[test]
    fn a_flow_without_a_slot_is_linuxs() {
        let mut slots = Slots::new(1, 2);
        slots.slots = vec![1; slots_for(2)];
        let inserted = slots.insert(&flow(1, 1), 1, |_| panic!("there is no free slot"));
        assert!(!inserted.unwrap());
        // So is one whose entry the tier does not have.
        let mut slots = Slots::new(1, 2);
        assert!(!slots.insert(&flow(1, 2), 1, |_| panic!("it is none of ours")).unwrap());
    }
}
