//! The tables that the slow half writes for the lanes, and what lanes write for it.
//!
//! [`Tables::attach`] gets them from a running application, [`Tables::private`] from memory that is
//! made here: the same tables and the same writers, without lanes. A [`Private`] keeps its memory,
//! so that tables can be attached again, as by a process that comes after one that was killed.

mod private;

use std::ops::DerefMut;
use std::sync::Arc;

use fastlane::slow::{PendingEvents, Slow, SlowError};
use fastlane::table::{
    ArrayWriter, EntryId, HashWriter, Lpm4Writer, Lpm6Writer, Pending, Readers, State, TableError,
};

pub use private::Private;

use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::framed_route::Framed;
use crate::rules::layout::key::{SessionRef, TunnelKey, UeKey};
use crate::rules::layout::session_rules::{Block, Rules};
use crate::rules::layout::table;

/// A writer, however it was come by.
pub type Lent<W> = Box<dyn DerefMut<Target = W> + Send>;

/// Why tables cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TablesError {
    /// The application does not give them.
    #[error(transparent)]
    Slow(#[from] SlowError),
    /// They are not what this program expects.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Pending events, however they were come by.
#[derive(Clone, Debug)]
pub enum Events {
    /// Of an application.
    Attached(PendingEvents),
    /// Of memory that was made here.
    Private(Pending),
}

impl Events {
    /// Calls `visit` for each session that has pending events, with what to give to
    /// [`done`](Self::done).
    pub fn scan(&self, visit: impl FnMut(EntryId, u64)) {
        match self {
            Self::Attached(events) => events.scan(visit),
            Self::Private(events) => events.scan(visit),
        }
    }

    /// The same for some of the places: a scan of all, a bit at a time.
    pub fn scan_range(&self, places: std::ops::Range<usize>, visit: impl FnMut(EntryId, u64)) {
        match self {
            Self::Attached(events) => events.scan_range(places, visit),
            Self::Private(events) => events.scan_range(places, visit),
        }
    }

    /// Says that the events of a session up to `seen` have been dealt with.
    pub fn done(&self, session: EntryId, seen: u64) {
        match self {
            Self::Attached(events) => events.done(session, seen),
            Self::Private(events) => events.done(session, seen),
        }
    }
}

/// The tables of rules and what finds them.
pub struct Tables {
    /// Rules by session.
    pub rules: Lent<ArrayWriter<Rules>>,
    /// Blocks.
    pub blocks: Lent<ArrayWriter<Block>>,
    /// Tunnels.
    pub tunnels: Lent<HashWriter<TunnelKey, SessionRef>>,
    /// Users' addresses.
    pub users: Lent<HashWriter<UeKey, SessionRef>>,
    /// Networks behind users, IPv4.
    pub framed4: Lent<Lpm4Writer>,
    /// Networks behind users, IPv6.
    pub framed6: Lent<Lpm6Writer>,
    /// Whose those networks are.
    pub framed: Lent<ArrayWriter<Framed>>,
    /// What lanes count, to be read.
    pub state: State<WORDS>,
    /// What lanes have raised.
    pub events: Events,
    /// The lanes that read them.
    pub readers: Arc<Readers>,
}

impl Tables {
    /// Those of a running application. Nobody else writes them as long as they live.
    ///
    /// # Errors
    /// When it has not all of them, or another program writes one.
    pub fn attach(slow: &Slow) -> Result<Self, TablesError> {
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

    /// Those in memory of one's own. As of a process that was killed, what another `Tables` of the
    /// same memory has left is in them; that one must not be used any more.
    ///
    /// # Errors
    /// When there is no memory.
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
