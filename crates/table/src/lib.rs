//! Memory that both halves of a network application share.
//!
//! A [`SharedMemory`] is a sealed memfd: it is passed as a file descriptor, never by name, and
//! cannot be shrunk under its readers. [`counters`] lays the counters of the lanes out in one,
//! [`journal`] a ring of records from one writer to one reader, [`messages`] two such rings between
//! each lane and the slow path.
//!
//! Tables are written by one slow path and read by the lanes: [`HashReader`] (exact match),
//! [`ArrayReader`] and [`RecordReader`] (by number, and one value exchanged as a whole),
//! [`LpmReader`] (longest prefix). A reader never waits for a writer and never retries, whatever
//! the writer does or where it dies: a value is written to a fresh slot and published by one store,
//! and a slot is used again only when every lane has passed a turn ([`Guard`], [`Readers`]).
//! [`State`] and [`Pending`] go the other way: lanes write, the slow path reads.
//!
//! A [`Spec`] makes a table's memory; readers and writers attach to it. The header's layout is in
//! `header.rs`, that of each kind at the top of its module; `tests/golden` keeps them as they are.

mod array;
mod bell;
pub mod counters;
mod entries;
mod error;
mod guard;
mod hash;
mod header;
pub mod journal;
mod layout;
mod lpm;
mod memory;
pub mod messages;
mod pages;
mod pending;
mod pool;
mod raw;
mod readers;
mod simd;
mod slots;
mod spec;
mod state;
mod words;

pub use array::{ArrayReader, ArrayWriter, RecordReader, RecordWriter};
pub use bell::Bell;
pub use entries::entries;
pub use error::TableError;
pub use guard::Guard;
pub use hash::{EntryId, Found, HashReader, HashWriter};
pub use lpm::{
    Address, Lpm4Reader, Lpm4Writer, Lpm6Reader, Lpm6Writer, LpmReader, LpmWriter, Prefix,
};
pub use memory::SharedMemory;
pub use pending::{LanePending, Pending};
pub use readers::{Readers, Snapshot};
pub use spec::{Key, Kind, Spec, Value};
pub use state::{AnyState, LaneState, Reset, State, StateWords};
pub use words::Words;
