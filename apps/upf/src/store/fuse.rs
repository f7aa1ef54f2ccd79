//! Stops a test between two operations on tables, as SIGKILL stops a process there: what is in
//! the heap is lost, what is in the tables stays.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

struct Stopped;

/// Before each operation.
pub(crate) fn burn() {
    match LEFT.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Stopped)),
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

/// Does something, but not more than so many operations: `None` when it was stopped.
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
