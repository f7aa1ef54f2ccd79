//! Tables in private memory, for tests, fuzzing and benchmarks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fastlane::table::{
    ArrayWriter, HashWriter, Key, Lpm4Writer, Lpm6Writer, Pending, Readers, SharedMemory, Spec,
    State, TableError, Value,
};

use super::{BoxedWriter, Capacities};

/// Memory of tables by name, created on first use. Lanes can attach readers to
/// [`memory`](Self::memory).
#[derive(Debug)]
pub struct Private {
    capacities: BTreeMap<&'static str, usize>,
    made: Mutex<BTreeMap<String, Arc<SharedMemory>>>,
    readers: Arc<Readers>,
}

impl Private {
    /// Creates the memory for these capacities, without lanes.
    #[must_use]
    pub fn new(capacities: Capacities) -> Self {
        Self::with_readers(capacities, Arc::new(Readers::none()))
    }

    /// Creates the memory with lanes that must pass a turn before entries are reused.
    #[must_use]
    pub fn with_readers(most: Capacities, readers: Arc<Readers>) -> Self {
        let capacities = BTreeMap::from(most.by_table());
        Self { capacities, made: Mutex::default(), readers }
    }

    /// Returns the lanes.
    #[must_use]
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Returns the memory of a table, to attach to.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn memory(
        &self,
        name: &str,
        spec: impl FnOnce(usize) -> Spec,
    ) -> Result<Arc<SharedMemory>, TableError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = made.get(name) {
            return Ok(Arc::clone(memory));
        }
        let capacity = self.capacities.get(name).copied().unwrap_or(1).max(1);
        let memory = spec(capacity).create()?;
        made.insert(name.to_owned(), Arc::clone(&memory));
        Ok(memory)
    }

    /// Opens the writer of an array.
    ///
    /// # Errors
    /// If memory is insufficient, or it holds another kind of table.
    pub fn array<V: Value>(&self, name: &str) -> Result<BoxedWriter<ArrayWriter<V>>, TableError> {
        let memory = self.memory(name, |capacity| Spec::array::<V>(name, capacity))?;
        Ok(Box::new(Box::new(ArrayWriter::attach(&memory, &self.readers)?)))
    }

    /// Opens the writer of an exact-match table.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn hash<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<BoxedWriter<HashWriter<K, V>>, TableError> {
        let memory = self.memory(name, |capacity| Spec::hash::<K, V>(name, capacity))?;
        Ok(Box::new(Box::new(HashWriter::attach(&memory, &self.readers)?)))
    }

    /// Opens the writer of a table of IPv4 prefixes.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn lpm4(&self, name: &str) -> Result<BoxedWriter<Lpm4Writer>, TableError> {
        let memory = self.memory(name, |capacity| Spec::lpm4(name, capacity))?;
        Ok(Box::new(Box::new(Lpm4Writer::attach(&memory, &self.readers)?)))
    }

    /// Opens the writer of a table of IPv6 prefixes.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn lpm6(&self, name: &str) -> Result<BoxedWriter<Lpm6Writer>, TableError> {
        let memory = self.memory(name, |capacity| Spec::lpm6(name, capacity))?;
        Ok(Box::new(Box::new(Lpm6Writer::attach(&memory, &self.readers)?)))
    }

    /// Opens the reader of lane state.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn state<const W: usize>(&self, name: &str) -> Result<State<W>, TableError> {
        State::attach(&self.memory(name, |capacity| Spec::state::<W>(name, capacity, 0))?)
    }

    /// Opens pending events.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn pending(&self, name: &str) -> Result<Pending, TableError> {
        Pending::attach(&self.memory(name, |capacity| Spec::pending(name, capacity, 0))?)
    }
}
