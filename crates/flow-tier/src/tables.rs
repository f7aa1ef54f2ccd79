//! Tables of the program, by their descriptors, for their one writer.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, DevMapHash, Map, MapData, MapError};
use fastlane_steer::ProgramArray;

use crate::encoding::{FlowWords, StatusWords};
use crate::entrances::Entrances;
use crate::error::system;
use crate::route_mtu_table::RouteMtuTable;
use crate::slots::SlotWrite;
use crate::tables_reader::{NAMES, TablesReader};

/// The tables.
pub(crate) struct Tables {
    pub(crate) reader: TablesReader,
    flows: Array<MapData, FlowWords>,
    slots: Array<MapData, u64>,
    homes: Array<MapData, u64>,
    pub(crate) status: Array<MapData, StatusWords>,
    pub(crate) entrances: Entrances,
    pub(crate) exits: DevMapHash<MapData>,
    pub(crate) route_mtus: RouteMtuTable,
    pub(crate) lanes: ProgramArray,
}

impl fmt::Debug for Tables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tables").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl Tables {
    /// Returns descriptors of the tables that the loader has created.
    pub(crate) fn descriptors(programs: &Ebpf) -> io::Result<[OwnedFd; NAMES.len()]> {
        let mut descriptors = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            let (Some(Map::Array(table) | Map::ProgramArray(table))
            | Some(Map::DevMapHash(table) | Map::LpmTrie(table))) = programs.map(name)
            else {
                return Err(io::Error::other(format!("the object has no table `{name}`")));
            };
            descriptors.push(table.fd().as_fd().try_clone_to_owned()?);
        }
        descriptors.try_into().map_err(|_| io::Error::other("a table is missing"))
    }

    /// Opens the tables by their descriptors, in the order of [`NAMES`].
    pub(crate) fn open(descriptors: [OwnedFd; NAMES.len()]) -> Result<Self, MapError> {
        let reader = TablesReader::open(&descriptors)?;
        let [flows, slots, homes, _, status, entrances, exits, route_mtus, lanes, _] = descriptors;
        let table = |descriptor| Map::from_map_data(MapData::from_fd(descriptor)?);
        Ok(Self {
            reader,
            flows: table(flows)?.try_into()?,
            slots: table(slots)?.try_into()?,
            homes: table(homes)?.try_into()?,
            status: table(status)?.try_into()?,
            entrances: Entrances::open(entrances)?,
            exits: table(exits)?.try_into()?,
            route_mtus: RouteMtuTable::open(route_mtus)?,
            lanes: ProgramArray::new(lanes.as_fd())?,
        })
    }

    /// Writes a flow, or a word of slots or of homes.
    pub(crate) fn write(&mut self, write: SlotWrite<'_>) -> io::Result<()> {
        let written = match write {
            SlotWrite::Flow(entry, words) => self.flows.set(entry.0, words, 0),
            SlotWrite::Slots(word, slots) => self.slots.set(word as u32, slots, 0),
            SlotWrite::Homes(word, bits) => self.homes.set(word as u32, bits, 0),
        };
        written.map_err(system)
    }
}
