//! Tables of the program, by their descriptors.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, DevMapHash, HashMap, Map, MapData, MapError, PerCpuArray};
use fastlane_mirror::flows::{FlowKey, TierFlow, TierTotals};
use fastlane_steer::{ArrayReader, ProgramArray};

use crate::encoding::StatusWords;
use crate::encoding::{self, CountWords, EntranceWords, FREE, SlotWords, StateWords, Status};
use crate::error::system;
use crate::slots::{FoundSlots, MAX_PROBES, SlotWrite, first_slots};
use crate::tier_outcome::{OutcomeCount, TierOutcome};

/// Names of the tables in `bpf/flows.bpf.c`.
pub(crate) const NAMES: [&str; 8] =
    ["flows", "homes", "states", "status", "entrances", "exits", "lanes", "outcomes"];

/// Slots, or words of homes, that are read at once.
const CHUNK: usize = 1024;

/// Returns the number of CPUs that the machine may have: the greatest number of one, and one more.
pub(crate) fn possible_cpus() -> io::Result<u32> {
    let path = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(path)?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("{path} has {text:?}")))
}

/// The tables.
pub(crate) struct Tables {
    pub(crate) flows: Array<MapData, SlotWords>,
    slots: ArrayReader<{ FREE.len() }>,
    homes: Array<MapData, u64>,
    home_words: ArrayReader<1>,
    states: ArrayReader<8>,
    /// Number of possible CPUs, each of which has a state of each flow.
    cpus: u32,
    pub(crate) status: Array<MapData, StatusWords>,
    pub(crate) entrances: HashMap<MapData, u32, EntranceWords>,
    pub(crate) exits: DevMapHash<MapData>,
    pub(crate) lanes: ProgramArray,
    outcomes: PerCpuArray<MapData, CountWords>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tables").field("capacity", &self.capacity()).finish()
    }
}

impl Tables {
    /// Returns descriptors of the tables that the loader has created.
    pub(crate) fn descriptors(programs: &Ebpf) -> io::Result<[OwnedFd; NAMES.len()]> {
        let mut descriptors = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            let Some(
                Map::HashMap(table)
                | Map::PerCpuArray(table)
                | Map::Array(table)
                | Map::ProgramArray(table)
                | Map::DevMapHash(table),
            ) = programs.map(name)
            else {
                return Err(io::Error::other(format!("the object has no table `{name}`")));
            };
            descriptors.push(table.fd().as_fd().try_clone_to_owned()?);
        }
        descriptors.try_into().map_err(|_| io::Error::other("a table is missing"))
    }

    /// Opens the tables by their descriptors, in the order of [`NAMES`].
    pub(crate) fn open(descriptors: [OwnedFd; NAMES.len()]) -> Result<Self, MapError> {
        let slots = ArrayReader::new(descriptors[0].as_fd())?;
        let home_words = ArrayReader::new(descriptors[1].as_fd())?;
        let states = ArrayReader::new(descriptors[2].as_fd())?;
        let lanes = ProgramArray::new(descriptors[6].as_fd())?;
        let [flows, homes, _, status, entrances, exits, _, outcomes] =
            descriptors.map(|descriptor| Map::from_map_data(MapData::from_fd(descriptor)?));
        Ok(Self {
            flows: flows?.try_into()?,
            slots,
            homes: homes?.try_into()?,
            home_words,
            states,
            cpus: possible_cpus()?,
            status: status?.try_into()?,
            entrances: entrances?.try_into()?,
            exits: exits?.try_into()?,
            lanes,
            outcomes: outcomes?.try_into()?,
        })
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len() as usize
    }

    /// Returns the maximum number of directions of flows.
    pub(crate) fn capacity(&self) -> usize {
        (self.states.len() / self.cpus) as usize
    }

    /// Writes a slot, or a word of homes.
    pub(crate) fn write(&mut self, write: SlotWrite<'_>) -> io::Result<()> {
        let written = match write {
            SlotWrite::Slot(slot, words) => self.flows.set(slot as u32, words, 0),
            SlotWrite::Homes(word, bits) => self.homes.set(word as u32, bits, 0),
        };
        written.map_err(system)
    }

    /// Returns a direction of a flow and its serial number.
    pub(crate) fn flow(&self, key: &FlowKey) -> io::Result<Option<(TierFlow, u32)>> {
        let status = Status::of(&self.status.get(&0, 0).map_err(system)?);
        let first = encoding::first_slot(key, status.seed, first_slots(self.slots()));
        for slot in first..first + MAX_PROBES {
            let words = self.flows.get(&(slot as u32), 0).map_err(system)?;
            if !encoding::is_taken(&words) {
                return Ok(None);
            }
            // One that is being written is passed, as by the program.
            match encoding::flow_of(&words) {
                Some(found) if found.0.key == *key => return Ok(Some(found)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns all slots and the homes.
    pub(crate) fn all(&self) -> io::Result<FoundSlots> {
        let mut slots = vec![FREE; self.slots()];
        for (first, chunk) in (0..).step_by(CHUNK).zip(slots.chunks_mut(CHUNK)) {
            self.slots.read(first, chunk)?;
        }
        let mut homes = vec![[0]; self.home_words.len() as usize];
        for (first, chunk) in (0..).step_by(CHUNK).zip(homes.chunks_mut(CHUNK)) {
            self.home_words.read(first, chunk)?;
        }
        Ok(FoundSlots { slots, homes: homes.into_flattened() })
    }

    /// Returns the totals of an insertion.
    pub(crate) fn totals(&self, entry: u32, serial: u32) -> io::Result<TierTotals> {
        let mut totals = TierTotals::default();
        let mut states: Vec<StateWords> = vec![[0; 8]; self.cpus as usize];
        self.states.read(entry * self.cpus, &mut states)?;
        states.iter().for_each(|state| encoding::add_state(&mut totals, state, serial));
        Ok(totals)
    }

    /// Returns the packets of each outcome.
    pub(crate) fn outcomes(&self) -> io::Result<Vec<OutcomeCount>> {
        let count = |outcome: TierOutcome| {
            let values = self.outcomes.get(&(outcome as u32), 0).map_err(system)?;
            let sum = |word: usize| values.iter().map(|words| words[word]).sum();
            Ok(OutcomeCount { outcome, packets: sum(0), octets: sum(1) })
        };
        TierOutcome::ALL.into_iter().map(count).collect()
    }
}
