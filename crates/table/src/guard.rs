//! Guard: the proof that a lane is inside a turn.
#![allow(unsafe_code, reason = "whoever makes a guard makes a promise")]

use crate::Readers;

/// Permission to read a table's slots.
///
/// A value that a reader returns borrows the guard. A writer reuses a slot only after every lane
/// has finished a turn ([`Readers`]). A guard must therefore not be borrowed when
/// its lane publishes a turn number or goes to sleep. `core::Turn` owns the guard of its lane and
/// lends it by `AsRef`, so no borrowed value survives the turn.
///
/// A guard may be sent and shared between threads. Only the time for which it is borrowed matters.
///
/// # Trust
/// A value is lent as a plain reference, which the language allows only while nobody writes it. The
/// compiler sees one process; all processes that have the memory must keep the promise together.
/// Whoever can write the memory does so as the one writer of the table, which the session grants.
/// Its [`Readers`] count every lane that has the table, by counters that only those lanes write.
///
/// A writer that breaks this may change a value while a lane reads it. The lane then reads
/// arbitrary bytes, which are still a valid value of the type. Readers check every number that they
/// follow.
#[derive(Debug)]
pub struct Guard {
    _private: (),
}

impl Guard {
    /// Creates the guard of a lane, or of a reader whose tables have no concurrent writer.
    ///
    /// # Safety
    /// While the guard is borrowed, one of these must hold for every table that is read with it.
    /// Either the writer's [`Readers`] count the lane, and the lane neither
    /// publishes a turn number, nor sleeps, nor ends. Or the writer does not write.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self { _private: () }
    }
}

impl Readers {
    /// Creates an empty set, for a writer whose tables no lane reads concurrently.
    ///
    /// # Safety
    /// No value that was found with a [`Guard`] is borrowed while a writer with this set writes its
    /// table.
    ///
    /// # Examples
    /// A set without readers takes unsafe code.
    /// ```compile_fail,E0133
    /// let readers = fastlane_table::Readers::none();
    /// ```
    #[must_use]
    pub unsafe fn none() -> Self {
        Self::of_no_lane()
    }
}

impl AsRef<Self> for Guard {
    fn as_ref(&self) -> &Self {
        self
    }
}
