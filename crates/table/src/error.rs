//! Errors of tables and rings.

use std::io;

/// An access to words that are not all inside a shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} words from word {first} on do not fit into {length} bytes of shared memory")]
pub struct OutsideMemory {
    /// Number of the first word.
    pub first: usize,
    /// Number of words.
    pub count: usize,
    /// Size of the memory, in bytes.
    pub length: usize,
}

/// Reason why a message ring or record ring could not be created or attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// Capacity that is not supported.
    #[error("a ring of {0} bytes: give it a power of two from 4 KiB to 1 GiB")]
    Capacity(usize),
    /// Memory that is too small for the ring.
    #[error("{0}; create the memory with the size that the ring's module computes")]
    NoRoom(#[from] OutsideMemory),
    /// Memory that holds no ring with this number.
    #[error(
        "there is no ring number {0}, or its header is damaged; its creator must set it up first"
    )]
    NoRing(usize),
}

/// Reason why a table could not be created, attached or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The kernel refused the memory.
    #[error("table '{table}': no memory: {source}; ask for a smaller capacity, or raise the limit")]
    Memory {
        /// Name of the table.
        table: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// Specification that no table can have.
    #[error("table '{table}': {reason}")]
    Spec {
        /// Name of the table.
        table: String,
        /// Violated limit.
        reason: String,
    },
    /// Memory that holds no table of this version, or only a part of one.
    #[error(
        "not a table of this version: {0}; build fast path and slow path from the same version"
    )]
    NotATable(String),
    /// Table with other types than the program's.
    #[error(
        "table '{table}': its {field} is {found}, this program expects {expected}; build fast path \
         and slow path from the same types"
    )]
    Differs {
        /// Name of the table.
        table: String,
        /// Property that differs.
        field: &'static str,
        /// Value in the memory.
        found: u64,
        /// Value that the program expects.
        expected: u64,
    },
    /// Writer on memory that is mapped read-only.
    #[error("table '{0}' is mapped for reading only; attach it writable to be its writer")]
    ReadOnly(String),
    /// Second writer of a memory.
    #[error("table '{0}' already has a writer in this process; drop that one first")]
    HasWriter(String),
    /// Table without free room.
    #[error("table '{table}' is full: {what}; remove entries, or give it a greater capacity")]
    Full {
        /// Name of the table.
        table: String,
        /// Resource that is exhausted.
        what: String,
    },
    /// Lane that delays the reuse of released slots.
    #[error(
        "table '{table}' has no free {what} because {lane} has passed no turn for {seconds} s; \
         see why it does not, or end the application"
    )]
    Stalled {
        /// Name of the table.
        table: String,
        /// Resource that is exhausted.
        what: &'static str,
        /// Lane without progress.
        lane: String,
        /// Time that the writer waited, in seconds.
        seconds: u64,
    },
    /// Index beyond the capacity.
    #[error("table '{table}' has no entry {index}: its capacity is {capacity}")]
    OutOfRange {
        /// Name of the table.
        table: String,
        /// Requested index.
        index: usize,
        /// Capacity of the table.
        capacity: usize,
    },
}
