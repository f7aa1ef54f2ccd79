//! The proof that a lane is inside a turn.
#![allow(unsafe_code, reason = "whoever makes a guard makes a promise")]

/// The right to look into a table's slots.
///
/// What a reader finds is lent for as long as the guard is borrowed. A writer reuses a slot only
/// after every lane has passed a turn ([`Readers`](crate::Readers)), so a guard must not be
/// borrowed when its lane publishes a turn number or goes to sleep. `core::Turn` owns the guard of
/// its lane and lends it out by `AsRef`; nothing that was found survives the turn.
///
/// It may be sent and shared: what counts is how long it is borrowed, not by which thread.
///
/// # Who is trusted
/// A value is lent as a plain reference, which the language allows only while nobody writes it.
/// The compiler sees one process; the promise is kept by all that have the memory, together:
/// whoever can write it does so as the one writer of the table (the session grants that), with
/// [`Readers`](crate::Readers) that count every lane that was handed the table, by counters that
/// those lanes alone write. A writer that does not may change a value while a lane looks at it:
/// the lane then finds any bytes in it, which are a value of its type all the same, and all numbers
/// that readers follow are checked.
#[derive(Debug)]
pub struct Guard {
    _private: (),
}

impl Guard {
    /// The guard of a lane, or of a reader that no writer of the same tables runs beside.
    ///
    /// # Safety
    /// While the guard is borrowed, one of these must hold for every table that is read by it: its
    /// writer's [`Readers`](crate::Readers) count the lane, which neither publishes a turn number
    /// nor sleeps nor ends; or the writer does not write.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self { _private: () }
    }
}

impl AsRef<Self> for Guard {
    fn as_ref(&self) -> &Self {
        self
    }
}
