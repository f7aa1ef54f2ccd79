//! Array writer of the store. Each operation is one store, and tests interrupt between any two.

use std::ops::DerefMut;

use fastlane::table::{ArrayWriter, TableError, Value};

/// Writer of an array, owned or shared.
pub type Cells<V> = Box<dyn DerefMut<Target = ArrayWriter<V>> + Send>;

/// Array with a failpoint before each operation.
pub(super) struct Array<V: 'static>(pub(super) Cells<V>);

impl<V: Value> Array<V> {
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(super) fn get(&self, index: u32) -> Option<&V> {
        self.0.get(index as usize)
    }

    pub(super) fn set(&mut self, index: u32, value: &V) -> Result<(), TableError> {
        #[cfg(test)]
        super::fuse::burn();
        self.0.set(index as usize, value)
    }

    pub(super) fn clear(&mut self, index: u32) {
        #[cfg(test)]
        super::fuse::burn();
        self.0.clear(index as usize);
    }
}
