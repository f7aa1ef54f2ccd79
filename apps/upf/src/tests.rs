//! Failpoints for tests: a test is stopped between any two table operations, as SIGKILL stops a
//! process. The heap is lost, the tables stay.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

struct Stopped;

/// Stops the test if the number of allowed operations is used up. Called before each operation.
pub(crate) fn fail_if_due() {
    match LEFT.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Stopped)),
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

/// Runs `what` with at most `operations` table operations. Returns `None` if it was stopped.
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
