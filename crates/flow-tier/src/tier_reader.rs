//! Read access to a running tier by its pins, for tools.

use std::io;
use std::path::Path;

use fastlane_mirror::flows::{FlowKey, TierTotals};

use crate::error::TierError;
use crate::pins::Pins;
use crate::tables_reader::TablesReader;
use crate::tier_outcome::OutcomeCount;

/// Read access to the tables of a tier.
#[derive(Debug)]
pub struct TierReader {
    tables: TablesReader,
}

impl TierReader {
    /// Opens the pins in a directory.
    ///
    /// # Errors
    /// Returns [`TierError::Unreadable`] without pins or privilege.
    pub fn open(pins: &Path) -> Result<Self, TierError> {
        let opened = Pins::new(pins).tables();
        let opened = opened.and_then(|tables| TablesReader::open(&tables));
        let unreadable = |reason| TierError::Unreadable { path: pins.to_owned(), reason };
        Ok(Self { tables: opened.map_err(unreadable)? })
    }

    /// Returns the totals of a direction of a flow; `None` if it is not in the table.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn totals(&self, key: &FlowKey) -> io::Result<Option<TierTotals>> {
        let Some((flow, serial)) = self.tables.flow(key)? else { return Ok(None) };
        self.tables.totals(flow.entry.0, serial).map(Some)
    }

    /// Returns the packets of each outcome.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn outcomes(&self) -> io::Result<Vec<OutcomeCount>> {
        self.tables.outcomes()
    }
}
