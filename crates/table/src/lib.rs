//! Memory that both halves of a network application share.
//!
//! A [`SharedMemory`] is a sealed memfd: it is passed as a file descriptor, never by name, and
//! cannot be shrunk under its readers. [`counters`] lays the counters of the lanes out in one,
//! [`journal`] a ring of records from one writer to one reader, [`messages`] two such rings between
//! each lane and the slow path.

mod bell;
pub mod counters;
pub mod journal;
mod memory;
pub mod messages;
mod words;

pub use bell::Bell;
pub use memory::SharedMemory;
pub use words::Words;
