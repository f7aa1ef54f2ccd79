//! Tables of the program, by their descriptors.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, DevMapHash, HashMap, Map, MapData, MapError, PerCpuArray};
use fastlane_mirror::flows::{FlowKey, TierFlow, TierTotals};

use crate::encoding::{
    self, CountWords, EntranceWords, FlowWords, KeyWords, StateWords, StatusWords,
};
use crate::error::system;
use crate::tier_outcome::{OutcomeCount, TierOutcome};

/// Names of the tables in `bpf/flows.bpf.c`.
pub(crate) const NAMES: [&str; 6] = ["flows", "states", "status", "entrances", "exits", "outcomes"];

/// The tables.
pub(crate) struct Tables {
    pub(crate) flows: HashMap<MapData, KeyWords, FlowWords>,
    states: PerCpuArray<MapData, StateWords>,
    pub(crate) status: Array<MapData, StatusWords>,
    pub(crate) entrances: HashMap<MapData, u32, EntranceWords>,
    pub(crate) exits: DevMapHash<MapData>,
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
        let [flows, states, status, entrances, exits, outcomes] =
            descriptors.map(|descriptor| Map::from_map_data(MapData::from_fd(descriptor)?));
        Ok(Self {
            flows: flows?.try_into()?,
            states: states?.try_into()?,
            status: status?.try_into()?,
            entrances: entrances?.try_into()?,
            exits: exits?.try_into()?,
            outcomes: outcomes?.try_into()?,
        })
    }

    /// Returns the maximum number of directions of flows.
    pub(crate) fn capacity(&self) -> usize {
        self.states.len() as usize
    }

    /// Returns a direction of a flow and its serial number.
    pub(crate) fn flow(&self, key: &FlowKey) -> io::Result<Option<(TierFlow, u32)>> {
        match self.flows.get(&encoding::key_words(key), 0) {
            Ok(words) => Ok(Some(encoding::flow_of(*key, &words))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(system(error)),
        }
    }

    /// Returns all directions of flows with their serial numbers.
    pub(crate) fn all(&self) -> io::Result<Vec<(TierFlow, u32)>> {
        let found = self.flows.iter().map(|found| {
            let (key, words) = found.map_err(system)?;
            Ok(encoding::flow_of(encoding::key_of(key), &words))
        });
        found.collect()
    }

    /// Returns the totals of an insertion.
    pub(crate) fn totals(&self, entry: u32, serial: u32) -> io::Result<TierTotals> {
        let mut totals = TierTotals::default();
        let states = self.states.get(&entry, 0).map_err(system)?;
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
