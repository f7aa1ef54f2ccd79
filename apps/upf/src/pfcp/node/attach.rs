//! Tables and sessions that a node is opened on.

use fastlane::slow::{SlowError, SlowPath};
use fastlane::table::TableError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::drain_state::DrainState;
use super::{Cell, Statistics, heartbeat};
use crate::config::Settings;
use crate::pfcp::NodeName;
use crate::pfcp::associations::association_record::AssociationRecord;
use crate::pfcp::sessions::Sessions;
use crate::rules::compile::Context;
use crate::rules::layout::table;
use crate::rules::publish::Published;
use crate::rules::{Private, Tables, TablesError};
use crate::session::FlowError;
use crate::store::{Cells, Store};
use crate::time::Now;
use crate::transactions::SEQUENCES;

/// Number of sequence numbers reserved at a time. After a restart the reserved block is skipped,
/// because its requests may still be in flight.
pub(super) const BLOCK: u32 = 1 << 16;
/// Tables of the node and its recovered sessions.
pub struct NodeTables {
    /// Table `node`.
    pub record: Cell<NodeRecord>,
    /// Table `peers`.
    pub peers: Cells<AssociationRecord>,
    /// Recovered sessions.
    pub sessions: Sessions,
    /// Fingerprint of the context that sessions are published with.
    pub context: u32,
}

/// Error of opening the tables of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The user plane process does not provide its tables.
    #[error(transparent)]
    Slow(#[from] SlowError),
    /// A table has an unexpected format.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The shared tables could not be attached.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// A predefined rule cannot be parsed.
    #[error("app.predefined.{rule}: {source}")]
    Predefined {
        /// Name of the rule.
        rule: String,
        /// Error in its flow description.
        source: FlowError,
    },
}

impl NodeTables {
    /// Attaches to the tables of a running user plane process and recovers the sessions: afterwards
    /// lanes read what the records say.
    ///
    /// # Errors
    /// A table is missing, or another program writes it.
    pub fn attach(settings: &Settings, slow: &SlowPath) -> Result<Self, AttachError> {
        let store = Store::open(
            Box::new(slow.array_writer(table::SESSIONS)?),
            Box::new(slow.array_writer(table::SESSION_PARTS)?),
            Box::new(slow.array_writer(table::ANSWERS)?),
        );
        let record: Cell<NodeRecord> = Box::new(slow.record_writer(table::NODE)?);
        let context = context(settings)?;
        let fingerprint = context.fingerprint();
        let published = published(Tables::attach(slow)?, context, &record, settings)?;
        Ok(Self {
            record,
            peers: Box::new(slow.array_writer(table::PEERS)?),
            sessions: sessions(settings, store, published),
            context: fingerprint,
        })
    }

    /// Creates tables in private memory, without lanes.
    ///
    /// # Errors
    /// Memory could not be allocated.
    pub fn private(settings: &Settings, memory: &Private) -> Result<Self, AttachError> {
        let store = Store::open(
            memory.array(table::SESSIONS)?,
            memory.array(table::SESSION_PARTS)?,
            memory.array(table::ANSWERS)?,
        );
        let record: Cell<NodeRecord> = memory.record(table::NODE)?;
        let context = context(settings)?;
        let fingerprint = context.fingerprint();
        let published = published(Tables::private(memory)?, context, &record, settings)?;
        Ok(Self {
            record,
            peers: memory.array(table::PEERS)?,
            sessions: sessions(settings, store, published),
            context: fingerprint,
        })
    }
}

fn context(settings: &Settings) -> Result<Context, AttachError> {
    Context::new(settings).map_err(|(rule, source)| AttachError::Predefined { rule, source })
}

/// Opens the published rules. Rules made with another context are compiled again.
fn published(
    tables: Tables,
    context: Context,
    record: &Cell<NodeRecord>,
    settings: &Settings,
) -> Result<Published, TableError> {
    let fingerprint = context.fingerprint();
    let mut published = Published::open(tables, context);
    published.slices_mut().set_limits(&settings.slices)?;
    if record.get().is_some_and(|record| record.context != fingerprint) {
        published.distrust();
    }
    Ok(published)
}

fn sessions(settings: &Settings, store: Store, published: Published) -> Sessions {
    Sessions::open(settings, NodeName::parse(&settings.node_id), store, published)
}

/// State of this node. It lives as long as the tables: without them the sessions are lost too.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NodeRecord {
    /// Our recovery time stamp (TS 29.244 clause 8.2.65), in seconds since 1900.
    pub recovery: u32,
    /// Number of starts of the control plane process with these tables.
    pub starts: u32,
    /// End of the reserved sequence numbers. Numbers below it may have been used.
    pub sequences: u32,
    /// Context that sessions are published with
    /// ([`Context::fingerprint`](crate::rules::compile::Context)).
    pub context: u32,
    /// Drain: 0 none, 1 for maintenance, 2 before the end of the process.
    pub drain: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// End of the release period, in nanoseconds of `CLOCK_MONOTONIC`; `u64::MAX` without one.
    pub drain_until: u64,
}

/// State in the memory of this process that outlives a user plane process.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Recovery time stamp.
    pub(super) recovery: u32,
    pub(super) statistics: Statistics,
    /// Drain, which goes on with a user plane process that has new tables.
    pub(super) drain: Option<DrainState>,
}

impl Keep {
    /// Returns true if there was no user plane process before.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.recovery == 0
    }
}

/// Updates the node record at a start. Returns it with the first sequence number to use.
pub(super) fn begin(
    record: &mut Cell<NodeRecord>,
    keep: &Keep,
    now: Now,
    context: u32,
) -> Result<NodeRecord, TableError> {
    // With empty tables the time stamp exceeds the previous one, whatever the clock says.
    let is_later = keep.recovery == 0 || heartbeat::is_newer(now.ntp(), keep.recovery);
    let recovery = if is_later { now.ntp() } else { keep.recovery.wrapping_add(1) };
    let kept = record.get().copied();
    let (drain, drain_until) = DrainState::values(keep.drain);
    let new = NodeRecord { recovery, drain, drain_until, ..Default::default() };
    let mut this = kept.unwrap_or(new);
    let first = this.sequences;
    this.starts = this.starts.wrapping_add(1);
    // Recovered sessions have been published with this context.
    this.context = context;
    this.sequences = (first + BLOCK) % SEQUENCES;
    record.set(&this)?;
    Ok(NodeRecord { sequences: first, ..this })
}
