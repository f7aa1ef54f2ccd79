//! Read access to the tables of the program, by system calls alone. The loader's access makes
//! programs and tables at its first use, to try what the kernel can. Their ends take grace periods
//! of RCU, for which whoever removes an interface waits too, so tools that run often must not.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use fastlane_mirror::flows::{FlowKey, TierFlow, TierTotals};
use fastlane_steer::ArrayReader;

use crate::encoding::{self, CountWords, FlowHash, NO_FLOW, StateWords, Status};
use crate::slots::{FoundSlots, MAX_PROBES, SLOTS_PER_WORD, first_slots, slot_at};
use crate::tier_outcome::{OutcomeCount, TierOutcome};

/// Names of the tables in `bpf/flows.bpf.c`.
pub(crate) const NAMES: [&str; 10] = [
    "flows",
    "places",
    "homes",
    "states",
    "status",
    "entrances",
    "exits",
    "route_mtus",
    "lanes",
    "outcomes",
];

/// Elements that are read at once.
const CHUNK: usize = 1024;

/// Returns the number of CPUs that the machine may have: the greatest number of one, and one more.
pub(crate) fn possible_cpus() -> io::Result<u32> {
    let path = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(path)?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("{path} has {text:?}")))
}

/// Reader of the tables.
#[derive(Debug)]
pub(crate) struct TablesReader {
    flows: ArrayReader<{ NO_FLOW.len() }>,
    slots: ArrayReader<1>,
    homes: ArrayReader<1>,
    states: ArrayReader<8>,
    status: ArrayReader<5>,
    outcomes: ArrayReader<2>,
    /// Number of possible CPUs, each of which has a state of each flow.
    cpus: u32,
}

impl TablesReader {
    /// Opens the tables by their descriptors, in the order of [`NAMES`].
    ///
    /// # Errors
    /// Returns an error if one is of another kind.
    pub(crate) fn open(tables: &[OwnedFd; NAMES.len()]) -> io::Result<Self> {
        let [flows, slots, homes, states, status, _, _, _, _, outcomes] = tables;
        Ok(Self {
            flows: ArrayReader::new(flows.as_fd())?,
            slots: ArrayReader::new(slots.as_fd())?,
            homes: ArrayReader::new(homes.as_fd())?,
            states: ArrayReader::new(states.as_fd())?,
            status: ArrayReader::new(status.as_fd())?,
            outcomes: ArrayReader::new(outcomes.as_fd())?,
            cpus: possible_cpus()?,
        })
    }

    /// Returns the number of words with slots.
    pub(crate) fn slot_words(&self) -> usize {
        self.slots.len() as usize
    }

    /// Returns the maximum number of directions of flows.
    pub(crate) fn capacity(&self) -> usize {
        self.flows.len() as usize
    }

    /// Returns the status of the slow path.
    pub(crate) fn status(&self) -> io::Result<Status> {
        let mut words = [[0; 5]];
        self.status.read(0, &mut words)?;
        Ok(Status::of(&words[0]))
    }

    /// Returns a direction of a flow and its serial number.
    pub(crate) fn flow(&self, key: &FlowKey) -> io::Result<Option<(TierFlow, u32)>> {
        let capacity = self.capacity();
        let hash = FlowHash::new(key, self.status()?.seed);
        let first = hash.first_slot(first_slots(capacity));
        let mut words = [[0]; MAX_PROBES / SLOTS_PER_WORD + 1];
        let count = words.len().min(self.slot_words() - first / SLOTS_PER_WORD);
        self.slots.read((first / SLOTS_PER_WORD) as u32, &mut words[..count])?;
        let begin = first % SLOTS_PER_WORD;
        for index in begin..begin + MAX_PROBES {
            let slot = slot_at(words.as_flattened(), index).unwrap_or_default();
            let Some(entry) = encoding::entry_of(slot, capacity) else { break };
            if hash.slot(entry, capacity) != slot {
                continue;
            }
            let mut flow = [NO_FLOW];
            self.flows.read(entry.0, &mut flow)?;
            // One that is being written is passed, as by the program.
            let found = encoding::flow_of(&flow[0], entry);
            if let Some(found) = found.filter(|(flow, _)| flow.key == *key) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns all flows, the slots and the homes.
    pub(crate) fn all(&self) -> io::Result<FoundSlots> {
        let slots = read_all(&self.slots, [0])?.into_flattened();
        let homes = read_all(&self.homes, [0])?.into_flattened();
        Ok(FoundSlots { flows: read_all(&self.flows, NO_FLOW)?, slots, homes })
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
        let mut counts: Vec<CountWords> = vec![[0; 2]; self.outcomes.len() as usize];
        self.outcomes.read(0, &mut counts)?;
        let count = |outcome: TierOutcome| {
            let of_cpus = counts.chunks(TierOutcome::ALL.len());
            let found = of_cpus.filter_map(|of_cpu| of_cpu.get(outcome as usize));
            let [packets, octets] =
                found.fold([0; 2], |sum, words| [sum[0] + words[0], sum[1] + words[1]]);
            OutcomeCount { outcome, packets, octets }
        };
        Ok(TierOutcome::ALL.into_iter().map(count).collect())
    }
}

/// Returns all elements of an array. Each is `empty` before it is read.
fn read_all<const N: usize>(array: &ArrayReader<N>, empty: [u64; N]) -> io::Result<Vec<[u64; N]>> {
    let mut elements = vec![empty; array.len() as usize];
    for (first, chunk) in (0..).step_by(CHUNK).zip(elements.chunks_mut(CHUNK)) {
        array.read(first, chunk)?;
    }
    Ok(elements)
}
