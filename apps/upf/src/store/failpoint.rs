//! Array writer of the store, with a failpoint before each operation.
//!
//! Each operation is one store. A failpoint stops a test between any two, as SIGKILL stops a
//! process: the heap is lost, the tables stay.

#[cfg(test)]
use std::cell::Cell;
use std::ops::DerefMut;
#[cfg(test)]
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
        fail_if_due();
        self.0.set(index as usize, value)
    }

    pub(super) fn clear(&mut self, index: u32) {
        #[cfg(test)]
        fail_if_due();
        self.0.clear(index as usize);
    }
}

#[cfg(test)]
thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

#[cfg(test)]
struct Stopped;

/// Stops the test if the number of allowed operations is used up. Called before each operation.
#[cfg(test)]
pub(crate) fn fail_if_due() {
    match LEFT.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Stopped)),
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

/// Runs `what` with at most `operations` table operations. Returns `None` if it was stopped.
#[cfg(test)]
pub(crate) fn stop_after<T>(operations: u32, what: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(operations));
    let ended = catch_unwind(AssertUnwindSafe(what));
    LEFT.set(None);
    match ended {
        Ok(value) => Some(value),
        Err(cause) if cause.is::<Stopped>() => None,
        Err(cause) => resume_unwind(cause),
    }
}
