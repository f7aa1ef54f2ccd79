//! Table writers of the control plane, and readers of what lanes write.
//!
//! [`Tables::attach`] opens them from a running application, [`Tables::private`] in private memory:
//! the same tables and writers, without lanes. A [`Private`] keeps its memory, so that tables can
//! be attached again, as by the successor of a killed process.

mod private;

use std::ops::DerefMut;
use std::sync::Arc;

use fastlane::slow::{PendingEvents, SlowError, SlowPath};
use fastlane::table::{
    ArrayWriter, EntryId, HashWriter, Lpm4Writer, Lpm6Writer, Pending, Readers, State, TableError,
};

pub use private::Private;

use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::framed_route::Framed;
use crate::rules::layout::key::{SessionRef, TunnelKey, UeKey};
use crate::rules::layout::session_rules::{Block, Rules};
use crate::rules::layout::table;

/// A writer of an application or of private memory.
pub type BoxedWriter<W> = Box<dyn DerefMut<Target = W> + Send>;

/// Reason why tables cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TablesError {
    /// The application does not provide a table.
    #[error(transparent)]
    Slow(#[from] SlowError),
    /// A table is not what this program expects.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Pending events of an application or of private memory.
#[derive(Clone, Debug)]
pub enum Events {
    /// Events of an application.
    Attached(PendingEvents),
    /// Events in private memory.
    Private(Pending),
}

impl Events {
    /// Calls `visit` for each session with pending events, with the value for [`done`](Self::done).
    pub fn scan(&self, visit: impl FnMut(EntryId, u64)) {
        match self {
            Self::Attached(events) => events.scan(visit),
            Self::Private(events) => events.scan(visit),
        }
    }

    /// Scans some of the sessions like [`scan`](Self::scan), for a scan in steps.
    pub fn scan_range(&self, places: std::ops::Range<usize>, visit: impl FnMut(EntryId, u64)) {
        match self {
            Self::Attached(events) => events.scan_range(places, visit),
            Self::Private(events) => events.scan_range(places, visit),
        }
    }

    /// Marks the events of a session up to `seen` as handled.
    pub fn done(&self, session: EntryId, seen: u64) {
        match self {
            Self::Attached(events) => events.done(session, seen),
            Self::Private(events) => events.done(session, seen),
        }
    }
}

/// Tables of rules and lookup keys.
pub struct Tables {
    /// Rules by session index.
    pub rules: BoxedWriter<ArrayWriter<Rules>>,
    /// Blocks of rules.
    pub blocks: BoxedWriter<ArrayWriter<Block>>,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: BoxedWriter<HashWriter<TunnelKey, SessionRef>>,
    /// UE addresses.
    pub users: BoxedWriter<HashWriter<UeKey, SessionRef>>,
    /// IPv4 networks behind UEs.
    pub framed4: BoxedWriter<Lpm4Writer>,
    /// IPv6 networks behind UEs.
    pub framed6: BoxedWriter<Lpm6Writer>,
    /// Owners of networks behind UEs.
    pub framed: BoxedWriter<ArrayWriter<Framed>>,
    /// Counter slots, read only.
    pub state: State<WORDS>,
    /// Pending events of sessions.
    pub events: Events,
    /// Lanes that read the tables.
    pub readers: Arc<Readers>,
}

impl Tables {
    /// Opens the tables of a running application. This is the only writer while it exists.
    ///
    /// # Errors
    /// If a table is missing, or another program writes it.
    pub fn attach(slow: &SlowPath) -> Result<Self, TablesError> {
        Ok(Self {
            rules: Box::new(slow.array_writer(table::RULES)?),
            blocks: Box::new(slow.array_writer(table::BLOCKS)?),
            tunnels: Box::new(slow.hash_writer(table::TUNNELS)?),
            users: Box::new(slow.hash_writer(table::USERS)?),
            framed4: Box::new(slow.lpm4_writer(table::FRAMED4)?),
            framed6: Box::new(slow.lpm6_writer(table::FRAMED6)?),
            framed: Box::new(slow.array_writer(table::FRAMED)?),
            state: slow.state(table::STATE)?,
            events: Events::Attached(slow.pending(table::EVENTS)?),
            readers: slow.readers(),
        })
    }

    /// Opens tables in private memory. They contain what a former `Tables` of the same memory has
    /// left, as after a kill; the former one must not be used any more.
    ///
    /// # Errors
    /// If memory is insufficient.
    pub fn private(memory: &Private) -> Result<Self, TablesError> {
        Ok(Self {
            rules: memory.array(table::RULES)?,
            blocks: memory.array(table::BLOCKS)?,
            tunnels: memory.hash(table::TUNNELS)?,
            users: memory.hash(table::USERS)?,
            framed4: memory.lpm4(table::FRAMED4)?,
            framed6: memory.lpm6(table::FRAMED6)?,
            framed: memory.array(table::FRAMED)?,
            state: memory.state(table::STATE)?,
            events: Events::Private(memory.pending(table::EVENTS)?),
            readers: Arc::clone(memory.readers()),
        })
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Tables").field("rules", &self.rules.capacity()).finish_non_exhaustive()
    }
}
