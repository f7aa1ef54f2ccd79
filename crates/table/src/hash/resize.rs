//! Rebuilds a table with another capacity.

use std::sync::Arc;

use super::HashWriter;
use crate::{Key, SharedMemory, Spec, TableError, Value};

impl<K: Key, V: Value> HashWriter<K, V> {
    /// Collapses the table's memory into huge pages, as [`SharedMemory::collapse`] does. Only
    /// needed if no memory for huge pages was free while the table was filled.
    pub fn collapse(&self) {
        self.reader.header.memory.collapse();
    }

    /// Creates a table of another capacity with the same keys, values and entry ids, and marks the
    /// old one as superseded. Returns the writer of the new table and its memory, for readers. They
    /// continue with the old table, which does not change any more, until they get the new one.
    ///
    /// Pass the new memory to the lanes before writing anything else. A lane that still reads the
    /// old table finds keys there that the writer has removed since, and entry ids that may belong
    /// to other keys. For this reason the method consumes the writer: only the owner of both the
    /// writer and the channel to the lanes can call it. A slow path only borrows its writer and
    /// cannot.
    ///
    /// # Errors
    /// Returns an error if not all keys and entry ids fit, or the kernel refuses the memory. The
    /// writer, which is returned with the error, and its table are unchanged.
    pub fn resize(mut self, capacity: usize) -> (Self, Result<Arc<SharedMemory>, TableError>) {
        match self.rebuilt(capacity) {
            Ok((mut new, memory)) => {
                let old = &self.reader.header;
                let generation = old.generation() + 1;
                new.reader.header.set_generation(generation);
                new.states = std::mem::take(&mut self.states);
                old.supersede(generation);
                (new, Ok(memory))
            }
            Err(error) => (self, Err(error)),
        }
    }

    /// Returns a copy of the table with another capacity.
    fn rebuilt(&self, capacity: usize) -> Result<(Self, Arc<SharedMemory>), TableError> {
        let old = &self.reader.header;
        let beyond = self.iter().map(|(_, found)| found.entry.index()).max();
        if beyond.is_some_and(|entry| entry >= capacity) {
            let what = format!("entry ids go to {}", beyond.unwrap_or(0));
            return Err(TableError::Full { table: old.name().to_owned(), what });
        }
        let memory = Spec { capacity, ..old.spec.clone() }.create()?;
        let mut new = Self::attach(&memory, &self.readers)?;
        for (key, found) in self.iter() {
            new.insert_with_id(&key, found.value, found.entry)?;
        }
        new.take_over_entries();
        Ok((new, memory))
    }
}
