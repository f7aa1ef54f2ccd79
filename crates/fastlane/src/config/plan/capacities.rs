//! Resolution of the sections that size memory: tables, messages, hold area and mirror.

use std::collections::BTreeMap;

use crate::Error;
use crate::config::checks::{refuse, twice, within};
use crate::config::raw::{self, Configuration};

/// Maximum number of tables: all their descriptors travel in one message of the session.
pub(crate) const MAX_TABLES: usize = 64;
/// Maximum number of lanes with messages: all doorbells travel in one message of the session.
const MAX_LANES: usize = 240;

/// Resolves the capacities of the tables.
pub(super) fn tables(raw: &Configuration) -> Result<BTreeMap<String, usize>, Error> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if raw.tables.len() > MAX_TABLES {
        let what = format!("there are {}; write at most {MAX_TABLES}", raw.tables.len());
        return Err(refuse("tables", what));
    }
    let table = |(name, table): (&String, &raw::Table)| {
        if name.is_empty() || name.len() > 32 || !name.chars().all(plain) {
            let what =
                format!("`{name}` is not a table name; write 1 to 32 letters, digits, `-`, `_`");
            return Err(refuse("tables", what));
        }
        let path = format!("tables.{name}.capacity");
        Ok((name.clone(), within(&path, table.capacity, 1, 1 << 26)?))
    };
    raw.tables.iter().map(table).collect()
}

/// Resolves the size of the message rings in KiB.
pub(super) fn messages(raw: &Configuration) -> Result<Option<usize>, Error> {
    let Some(raw::Messages { ring_kib }) = raw.messages else { return Ok(None) };
    let lanes = raw.lanes.cpus.as_ref().map_or(1, Vec::len);
    if lanes > MAX_LANES {
        let what = format!("there are {lanes} lanes; with messages name at most {MAX_LANES} CPUs");
        return Err(refuse("messages", what));
    }
    if !ring_kib.is_power_of_two() || !(4..=1 << 20).contains(&ring_kib) {
        let what = format!("{ring_kib} is not allowed; write a power of two from 4 to 1048576");
        return Err(refuse("messages.ring-kib", what));
    }
    Ok(Some(ring_kib))
}

/// Resolves the limits of the hold area.
pub(super) fn hold(raw: raw::Hold) -> Result<fastlane_hold::HoldLimits, Error> {
    let packets = within("lanes.hold.packets", raw.packets, 0, 1 << 20)?;
    let per_key = within("lanes.hold.per-key", raw.per_key, 1, 1 << 20)?;
    Ok(fastlane_hold::HoldLimits { packets, per_key })
}

/// Checks the settings of the mirror.
pub(super) fn mirror(raw: &Configuration) -> Result<Option<raw::Mirror>, Error> {
    let Some(mirror) = &raw.mirror else { return Ok(None) };
    within("mirror.routes", mirror.routes, 1, 1 << 21)?;
    within("mirror.neighbours", mirror.neighbours, 1, 1 << 20)?;
    within("mirror.tables", mirror.tables.len(), 1, 16).map_err(|_| {
        let what = format!("there are {}; name 1 to 16, each once", mirror.tables.len());
        refuse("mirror.tables", what)
    })?;
    let numbers: Vec<usize> = mirror.tables.iter().map(|table| *table as usize).collect();
    match twice(&numbers) {
        Some(table) => Err(refuse("mirror.tables", format!("{table} is named twice"))),
        None => Ok(Some(mirror.clone())),
    }
}
