//! Tables and sessions that a node is opened on.

use fastlane::slow::{Slow, SlowError};
use fastlane::table::{RecordWriter, Spec, TableError};

use super::Cell;
use super::identity;
use super::record::NodeRecord;
use crate::config::Settings;
use crate::pfcp::peer::record::PeerRecord;
use crate::pfcp::sessions::Sessions;
use crate::rules::compile::Context;
use crate::rules::layout::table;
use crate::rules::publish::Published;
use crate::rules::tables::{Private, Tables, TablesError};
use crate::session::FlowError;
use crate::store::{Cells, Store};

/// Tables of the node and its recovered sessions.
pub struct Parts {
    /// Table `node`.
    pub record: Cell<NodeRecord>,
    /// Table `peers`.
    pub peers: Cells<PeerRecord>,
    /// Recovered sessions.
    pub sessions: Sessions,
    /// Fingerprint of the context that sessions are published with.
    pub context: u32,
}

/// Error of opening the tables of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
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

impl Parts {
    /// Attaches to the tables of a running user plane process and recovers the sessions: afterwards
    /// lanes read what the records say.
    ///
    /// # Errors
    /// A table is missing, or another program writes it.
    pub fn attach(settings: &Settings, slow: &Slow) -> Result<Self, PartsError> {
        let store = Store::open(
            Box::new(slow.array_writer(table::SESSIONS)?),
            Box::new(slow.array_writer(table::SESSION_PARTS)?),
            Box::new(slow.array_writer(table::ANSWERS)?),
        );
        let record: Cell<NodeRecord> = Box::new(slow.record_writer(table::NODE)?);
        let context = context(settings)?;
        let fingerprint = context.fingerprint();
        let published = published(Tables::attach(slow)?, context, &record);
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
    pub fn private(settings: &Settings, memory: &Private) -> Result<Self, PartsError> {
        let store = Store::open(
            memory.array(table::SESSIONS)?,
            memory.array(table::SESSION_PARTS)?,
            memory.array(table::ANSWERS)?,
        );
        let record = memory.memory(table::NODE, |_| Spec::record::<NodeRecord>(table::NODE))?;
        let record = RecordWriter::attach(&record, memory.readers())?;
        let record: Cell<NodeRecord> = Box::new(Box::new(record));
        let context = context(settings)?;
        let fingerprint = context.fingerprint();
        let published = published(Tables::private(memory)?, context, &record);
        Ok(Self {
            record,
            peers: memory.array(table::PEERS)?,
            sessions: sessions(settings, store, published),
            context: fingerprint,
        })
    }
}

fn context(settings: &Settings) -> Result<Context, PartsError> {
    Context::new(settings).map_err(|(rule, source)| PartsError::Predefined { rule, source })
}

/// Opens the published rules. Rules made with another context are compiled again.
fn published(tables: Tables, context: Context, record: &Cell<NodeRecord>) -> Published {
    let fingerprint = context.fingerprint();
    let mut published = Published::open(tables, context);
    if record.get().is_some_and(|record| record.context != fingerprint) {
        published.distrust();
    }
    published
}

fn sessions(settings: &Settings, store: Store, published: Published) -> Sessions {
    Sessions::open(settings, identity::parse(&settings.node_id), store, published)
}
