//! What a node stands on.

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

/// Tables of the node, and sessions in theirs.
pub struct Parts {
    /// The table `node`.
    pub record: Cell<NodeRecord>,
    /// The table `peers`.
    pub peers: Cells<PeerRecord>,
    /// Sessions.
    pub sessions: Sessions,
    /// What they are published with.
    pub context: u32,
}

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// The application does not give its tables.
    #[error(transparent)]
    Slow(#[from] SlowError),
    /// They are not what this program expects.
    #[error(transparent)]
    Table(#[from] TableError),
    /// As one of the above.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// A predefined rule cannot be read.
    #[error("app.predefined.{rule}: {source}")]
    Predefined {
        /// Its name.
        rule: String,
        /// What is wrong with it.
        source: FlowError,
    },
}

impl Parts {
    /// Those of a running application. Sessions are recovered: what lanes read becomes what the
    /// records say.
    ///
    /// # Errors
    /// When it has not all tables, or another program writes one.
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

    /// Those in memory of one's own, without lanes.
    ///
    /// # Errors
    /// When there is no memory.
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

/// What is published, as far as it was made with the same context.
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
