//! Shared memory between the fast path and the slow path of a network application.
//!
//! A [`SharedMemory`] is a sealed memfd. It is passed as a file descriptor, never by name, and
//! cannot be shrunk under its readers. It holds one of these:
//!
//! * a table, which one slow path writes and the lanes read: [`HashReader`] (exact match),
//!   [`ArrayReader`] and [`RecordReader`] (by index; one value replaced as a whole), [`LpmReader`]
//!   (longest prefix match), [`ClassifierReader`] (first matching rule of a list), each with its
//!   writer
//! * lane state, which lanes write and the slow path reads: [`State`] and [`Pending`]; a
//!   [`MeterState`] is three words of it
//! * [`messages`]: two rings between each lane and the slow path
//! * a [`journal`]: a ring of records from one writer to one reader
//! * the [`counters`] of an application
//!
//! A [`Spec`] creates a table's memory; readers and writers attach to it.
//!
//! # Invariants
//! * Readers never wait for a writer and never retry, whatever the writer does and wherever it
//!   dies.
//!   A value is written to a fresh slot and published by one store.
//! * A slot is reused only after every lane has finished a turn ([`Guard`], [`Readers`]).
//! * Every word has one writer at a time.
//! * The layout is documented in `header.rs` and at the top of each module. `tests/golden` keeps
//!   it,
//!   so other languages can read it.
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//!
//! use fastlane_table::{HashReader, HashWriter, Readers, Spec};
//!
//! // The fast path creates the table and passes its descriptor to the slow path.
//! let memory = Spec::hash::<[u8; 4], u64>("blocked", 1024).create()?;
//!
//! // The slow path writes it.
//! // SAFETY: no lane reads in this example.
//! let readers = Arc::new(unsafe { Readers::none() });
//! let mut writer = HashWriter::<[u8; 4], u64>::attach(&memory, &readers)?;
//! writer.insert(&[192, 0, 2, 1], &7)?;
//!
//! // A lane looks keys up with `get` and its turn; a tool copies values.
//! let reader = HashReader::<[u8; 4], u64>::attach(&memory)?;
//! assert_eq!(reader.copy(&[192, 0, 2, 1]).map(|(_, value)| value), Some(7));
//! # Ok::<(), fastlane_table::TableError>(())
//! ```

mod array;
mod claims;
mod classifier;
pub mod counters;
mod create;
mod doorbell;
mod entries;
mod error;
mod grace_periods;
mod guard;
mod hash;
mod header;
mod huge_pages;
pub mod journal;
mod layout;
mod lpm;
mod memory;
pub mod messages;
mod meter;
mod pending;
mod populate;
mod prefix_value;
mod process_memory;
mod readers;
mod shared_slice;
mod shared_words;
mod simd;
mod slots;
mod spec;
mod state;
mod written;

pub use array::{ArrayReader, ArrayWriter, RecordReader, RecordWriter};
pub use classifier::{
    ClassifierReader, ClassifierWriter, CurrentRules, FlowAddress, FlowKey, FlowMatch, RuleList,
    Statistics,
};
pub use doorbell::Doorbell;
pub use entries::{EntryId, entries};
pub use error::{OutsideMemory, RingError, TableError};
pub use grace_periods::GracePeriods;
pub use guard::Guard;
pub use hash::{HashEntry, HashReader, HashWriter};
pub use lpm::{
    Address, Lpm4Reader, Lpm4Writer, Lpm6Reader, Lpm6Writer, LpmReader, LpmWriter, Prefix,
};
pub use memory::SharedMemory;
pub use meter::{Colour, MAX_BURST, MeterProfile, MeterState};
pub use pending::{LanePending, Pending};
pub use populate::PageSize;
pub use prefix_value::PrefixValue;
pub use process_memory::ProcessMemory;
pub use readers::{Readers, Snapshot, Stall};
pub use shared_words::SharedWords;
pub use simd::prefetch;
pub use spec::{Key, Kind, Spec, Value};
pub use state::{AnyState, LaneState, Reset, State, StateWords, WritableWords};
