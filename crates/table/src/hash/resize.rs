//! Building a table anew with another capacity.

use std::sync::Arc;

use super::HashWriter;
use crate::{Key, SharedMemory, Spec, TableError, Value};

impl<K: Key, V: Value> HashWriter<K, V> {
    /// As [`SharedMemory::collapse`]: for tables that were filled where there was no memory for
    /// huge pages; else they are there already.
    pub fn collapse(&self) {
        self.reader.header.memory.collapse();
    }

    /// Makes a table of another capacity with the same keys, values and entry ids, says in the old
    /// one that it is superseded, and gives the writer of the new one and its memory, for readers:
    /// they go on with the old one, which stays as it is, until they are handed this.
    ///
    /// Hand it over before anything else is written: a lane that still looks into the old table in
    /// its next turn finds keys there that the writer has removed since, and with them entry ids
    /// that may already belong to others. So it takes the writer itself: only who owns both the
    /// writer and the way to the lanes can do it. Whoever writes a table of a running application
    /// has the writer lent, and cannot.
    ///
    /// # Errors
    /// When not all keys and entry ids fit, or the kernel refuses the memory; the writer and its
    /// table, which come back with the error, are then as before.
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

    /// A copy of the table with another capacity.
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
