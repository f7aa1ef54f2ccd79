//! Tables of the eBPF programs, by descriptors that another process may have created.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, Map, MapData, MapError, PerCpuArray, XskMap},
};

use crate::{
    encoded_rules::EncodedSteering,
    error::{self, ProgramError},
};

/// Names in `bpf/steer.bpf.c` of the tables that a handover includes.
const NAMES: [&str; 3] = ["steering", "sockets", "counts"];

/// Tables of a port's programs.
pub(crate) struct Tables {
    steering: ArrayOfMaps<MapData, Array<MapData, EncodedSteering>>,
    /// Current value of `steering`, if this process knows it.
    current: Option<Array<MapData, EncodedSteering>>,
    pub(crate) sockets: XskMap<MapData>,
    pub(crate) counts: PerCpuArray<MapData, u64>,
    /// Descriptors in the order of `NAMES`.
    descriptors: [OwnedFd; 3],
}

impl Tables {
    /// Returns the tables that the loader created for a program. The loader keeps its own
    /// descriptors.
    pub(crate) fn of(programs: &Ebpf) -> Result<Self, ProgramError> {
        let mut descriptors = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            let (Map::ArrayOfMaps(table) | Map::XskMap(table) | Map::PerCpuArray(table)) =
                programs.map(name).ok_or_else(|| error::absent(name))?
            else {
                return Err(error::absent(name));
            };
            descriptors.push(duplicate(table.fd().as_fd())?);
        }
        let descriptors = descriptors.try_into().map_err(|_| error::absent("a table"))?;
        Self::open(descriptors)
    }

    /// Opens the tables by their descriptors: steering, sockets, counts.
    pub(crate) fn open(descriptors: [OwnedFd; 3]) -> Result<Self, ProgramError> {
        let [steering, sockets, counts] = &descriptors;
        let steering: ArrayOfMaps<MapData, _> = table(steering, ArrayOfMaps::try_from)?;
        let sockets = table(sockets, XskMap::try_from)?;
        let counts = table(counts, PerCpuArray::try_from)?;
        // Requires CAP_SYS_ADMIN, which may be missing: see `replace`.
        let current = steering.get(&0, 0).ok();
        Ok(Self { steering, current, sockets, counts, descriptors })
    }

    /// Returns the descriptors in the order of `NAMES`.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.descriptors.each_ref().map(OwnedFd::as_fd)
    }

    /// Puts rules and settings in force, from one frame to the next.
    pub(crate) fn replace(&mut self, words: EncodedSteering) -> Result<(), ProgramError> {
        let action = "writing the steering rules";
        let refused = |error| error::table_error(action, error);
        let mut table = Array::create(1, 0).map_err(refused)?;
        table.set(0, words, 0).map_err(refused)?;
        self.steering.set(0, &table, 0).map_err(refused)?;
        // Dropped only now, when no program uses the old table any more. Kernels without the fix
        // for CVE-2023-52447 would free a table under a running program if its last descriptor were
        // closed earlier.
        self.current = Some(table);
        Ok(())
    }
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, ProgramError> {
    descriptor
        .try_clone_to_owned()
        .map_err(|source| ProgramError::system("duplicating a steering table", source))
}

fn table<T>(
    descriptor: &OwnedFd,
    convert: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, ProgramError> {
    let descriptor = duplicate(descriptor.as_fd())?;
    MapData::from_fd(descriptor)
        .and_then(Map::from_map_data)
        .and_then(convert)
        .map_err(|error| error::table_error("opening a table of the steering program", error))
}
