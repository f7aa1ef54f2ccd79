//! Creates the memory of tables and reads the specification of an existing one.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::header::Header;
use crate::layout::{CACHE_LINE, Layout, PAGE};
use crate::memory::HUGE_PAGE;
use crate::spec::{Kind, Spec};
use crate::{SharedMemory, TableError};

impl Spec {
    /// Creates the memory of an empty table.
    ///
    /// # Errors
    /// Returns an error if the specification is invalid, or the kernel refuses the memory.
    pub fn create(&self) -> Result<Arc<SharedMemory>, TableError> {
        let mut spec = self.clone();
        while spec.seed == [0; 2] {
            spec.seed = [random(), random()];
        }
        let layout = Layout::of(&spec)?;
        let memory = SharedMemory::create_for_tables(&spec.name, layout.length)
            .map_err(|source| TableError::Memory { table: spec.name.clone(), source })?;
        let memory = Arc::new(memory);
        if let Some((rib, at)) = layout.nested(&spec) {
            Header::write(&memory, at, &rib, &Layout::of(&rib)?)?;
        }
        Header::write(&memory, 0, &spec, &layout)?;
        // Lanes read the buckets at random whatever the table holds, so they get huge pages at
        // once.
        if spec.kind == Kind::Hash && memory.len() >= HUGE_PAGE {
            memory.make_huge_range(layout.index, layout.index + layout.buckets * CACHE_LINE);
        }
        Ok(memory)
    }

    /// Returns the specification of the table in a memory.
    ///
    /// # Errors
    /// Returns an error if it is no table of this version, or smaller than its header states.
    pub fn of(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Ok(Header::read(memory, 0)?.spec)
    }

    /// Returns the size of the table's memory, in bytes.
    ///
    /// # Errors
    /// Returns an error if the specification is invalid.
    pub fn length(&self) -> Result<usize, TableError> {
        Ok(Layout::of(self)?.length.next_multiple_of(PAGE))
    }
}

/// Returns an unpredictable number: the standard library seeds its hasher from the kernel.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
