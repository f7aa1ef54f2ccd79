//! What can go wrong with a table.

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

/// Why a message or record ring could not be created or attached.
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

/// Why a table could not be made, attached or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The kernel refused the memory.
    #[error("table '{table}': no memory: {source}; ask for a smaller capacity, or raise the limit")]
    Memory {
        /// Its name.
        table: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No table can be made like this.
    #[error("table '{table}': {reason}")]
    Spec {
        /// Its name.
        table: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The memory is not a table, or was cut off.
    #[error("not a table of this version: {0}; both halves must be built from the same version")]
    NotATable(String),
    /// The memory holds another table than the program expects.
    #[error(
        "table '{table}': its {field} is {found}, this program expects {expected}; build both \
         halves from the same types"
    )]
    Differs {
        /// Its name.
        table: String,
        /// What differs.
        field: &'static str,
        /// As in the memory.
        found: u64,
        /// As the program would have it.
        expected: u64,
    },
    /// A writer needs memory that it can write.
    #[error("table '{0}' is mapped for reading only; attach it writable to be its writer")]
    ReadOnly(String),
    /// There is no room.
    #[error("table '{table}' is full: {what}; remove entries, or give it a greater capacity")]
    Full {
        /// Its name.
        table: String,
        /// What has run out.
        what: String,
    },
    /// A lane holds back memory that was given up.
    #[error(
        "table '{table}' has no free {what} because {lane} has passed no turn for {seconds} s; \
         see why it does not, or end the application"
    )]
    Stalled {
        /// Its name.
        table: String,
        /// What is short.
        what: &'static str,
        /// Who does not pass.
        lane: String,
        /// For how long the writer has waited.
        seconds: u64,
    },
    /// There is no such place.
    #[error("table '{table}' has no entry {index}: its capacity is {capacity}")]
    OutOfRange {
        /// Its name.
        table: String,
        /// What was asked for.
        index: usize,
        /// How many there are.
        capacity: usize,
    },
}
