//! Memory that both halves of a network application share.
//!
//! A [`SharedMemory`] is a sealed memfd: it is passed as a file descriptor, never by name, and
//! cannot be shrunk under its readers. [`counters`] lays the counters of the lanes out in one,
//! [`journal`] a ring of records from one lane to one reader.

pub mod counters;
pub mod journal;
mod memory;
mod words;

pub use memory::SharedMemory;
pub use words::Words;
