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
pub mod counters;
mod create;
mod doorbell;
mod entries;
mod error;
mod free_list;
mod guard;
mod hash;
mod header;
mod huge_pages;
pub mod journal;
mod layout;
mod lpm;
mod memory;
pub mod messages;
mod pending;
mod readers;
mod shared_slice;
mod shared_words;
mod simd;
mod slots;
mod spec;
mod state;

pub use array::{ArrayReader, ArrayWriter, RecordReader, RecordWriter};
pub use doorbell::Doorbell;
pub use entries::entries;
pub use error::{OutsideMemory, RingError, TableError};
pub use guard::Guard;
pub use hash::{EntryId, HashEntry, HashReader, HashWriter};
pub use lpm::{
    Address, Lpm4Reader, Lpm4Writer, Lpm6Reader, Lpm6Writer, LpmReader, LpmWriter, Prefix,
};
pub use memory::SharedMemory;
pub use pending::{LanePending, Pending};
pub use readers::{Readers, Snapshot};
pub use shared_words::SharedWords;
pub use spec::{Key, Kind, Spec, Value};
pub use state::{AnyState, LaneState, Reset, State, StateWords};
