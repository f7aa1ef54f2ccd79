//! An array as the store writes it: each operation is one store, and tests stop between any two.

use std::ops::DerefMut;

use fastlane::table::{ArrayWriter, TableError, Value};

/// A writer of an array, however it was come by.
pub type Cells<V> = Box<dyn DerefMut<Target = ArrayWriter<V>> + Send>;

/// The writer, seen by operations.
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
