//! Creates tables and reads what a memory holds.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::header::Header;
use crate::layout::{CACHE_LINE, Layout, PAGE};
use crate::memory::HUGE_PAGE;
use crate::spec::{Kind, Spec};
use crate::{SharedMemory, TableError};

impl Spec {
    /// Makes the table, empty.
    ///
    /// # Errors
    /// When there can be no such table, or the kernel refuses its memory.
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
        // Lanes read it at random, whatever is in it.
        if spec.kind == Kind::Hash && memory.len() >= HUGE_PAGE {
            memory.make_huge_range(layout.index, layout.index + layout.buckets * CACHE_LINE);
        }
        Ok(memory)
    }

    /// What a memory holds.
    ///
    /// # Errors
    /// When it is no table of this version, or smaller than its header says.
    pub fn of(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Ok(Header::read(memory, 0)?.spec)
    }

    /// The process that became the table's writer last; 0: none has.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn writer_of(memory: &Arc<SharedMemory>) -> Result<u32, TableError> {
        Ok(Header::read(memory, 0)?.writer())
    }

    /// Bytes of the table's memory.
    ///
    /// # Errors
    /// When there can be no such table.
    pub fn length(&self) -> Result<usize, TableError> {
        Ok(Layout::of(self)?.length.next_multiple_of(PAGE))
    }
}

/// A number that nobody can foresee: the standard library's hasher is keyed by the kernel.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
