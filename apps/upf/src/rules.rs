//! The rules of sessions as the user plane reads them: one life, from layout to publication.
//!
//! [`layout`] is the shared-memory format of both processes, [`compile`] makes it of a session, and
//! [`publish`] writes it into the shared [`Tables`].
//!
//! # Tables
//! [`Tables::attach`] opens them from a running application, [`Tables::private`] in private memory:
//! the same tables and writers, without lanes. A [`Private`] keeps its memory, so that tables can
//! be attached again, as by the successor of a killed process. [`Capacities`] follow from the
//! settings.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::DerefMut;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use fastlane::slow::{PendingEvents, SlowError};
use fastlane::table::{
    ArrayWriter, EntryId, HashWriter, Key, Lpm4Writer, Lpm6Writer, Pending, Readers, RecordWriter,
    SharedMemory, Spec, State, TableError, Value,
};
use rustix::fs::{SeekFrom, seek};

use self::layout::{drop_reason, nat_tables, slices, table};
use crate::config::nat_plan::NatPlan;
use crate::config::{Settings, TeidChoice};

pub mod compile;
pub mod layout;
pub mod publish;

pub use self::publish::Tables;

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

/// Up to this number all sessions may have complex rules; of those beyond, a quarter.
const ALL_COMPLEX: u32 = 65_536;
/// Responses stored per ms: more than one thread sends. Even with few sessions, a peer that waits
/// for each response may send requests at this rate.
const ANSWERS_PER_MS: usize = 80;
/// One in this number of responses may need an overflow part.
const LONG_ANSWERS: usize = 4;
/// Minimum capacity for responses.
const FEWEST_ANSWERS: usize = 4096;
/// Maximum number of associations (TS 29.244 clause 6.2.6).
const PEERS: usize = 1024;

/// Capacities of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// Sessions: records, rules, events.
    pub sessions: usize,
    /// Sessions with complex rules.
    pub complex: usize,
    /// Counter slots: one per session, three more per complex session.
    pub lines: usize,
    /// Blocks of rules.
    pub blocks: usize,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: usize,
    /// UE addresses: per session one IPv4 address and one IPv6 prefix.
    pub users: usize,
    /// Networks behind UEs.
    pub framed: usize,
    /// Overflow parts of session records.
    pub parts: usize,
    /// Stored responses to retransmitted requests.
    pub answers: usize,
    /// NAT: users, blocks of external ports, buckets of port slots.
    pub nat: [usize; 3],
}

impl Capacities {
    /// Returns the capacities with room for `answers` responses, for tests, which create new tables
    /// often.
    #[must_use]
    pub const fn with_answers(self, answers: usize) -> Self {
        let parts = self.parts - self.answers / LONG_ANSWERS + answers / LONG_ANSWERS;
        Self { answers, parts, ..self }
    }

    /// Returns the capacities for these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let (sessions, limits) = (settings.session_room(), &settings.limits);
        let most = sessions.min(ALL_COMPLEX) + sessions.saturating_sub(ALL_COMPLEX) / 4;
        let complex = limits.complex_sessions.unwrap_or(most).clamp(1, sessions.max(1));
        let (sessions, complex) = (sessions as usize, complex as usize);
        Self {
            sessions,
            complex,
            lines: sessions + 3 * complex,
            blocks: 2 * complex + 64,
            tunnels: match settings.teid {
                TeidChoice::Upf => sessions + 1024,
                TeidChoice::Smf => 2 * sessions + 1024,
            },
            users: 2 * sessions + 64,
            framed: sessions / 16 + 1024,
            parts: 4 * complex + 256,
            answers: 0,
            nat: nat_capacities(settings),
        }
        .with_answers(answers(settings))
    }

    /// Returns the capacities by table name.
    #[must_use]
    pub const fn by_table(self) -> [(&'static str, usize); 22] {
        [
            (table::RULES, self.sessions),
            (table::BLOCKS, self.blocks),
            (table::TUNNELS, self.tunnels),
            (table::USERS, self.users),
            (table::FRAMED4, self.framed),
            (table::FRAMED6, self.framed),
            (table::FRAMED, self.framed),
            (table::STATE, self.lines),
            (table::EVENTS, self.sessions),
            (table::CAUSES, drop_reason::ENTRIES),
            (table::SESSIONS, self.sessions),
            (table::SESSION_PARTS, self.parts),
            (table::ANSWERS, self.answers),
            (table::PEERS, PEERS),
            (table::NODE, 1),
            (table::CONFIGURATION, 1),
            (nat_tables::NAT_USERS, self.nat[0]),
            (nat_tables::NAT_BLOCKS, self.nat[1]),
            (nat_tables::NAT_PORTS, self.nat[2]),
            (slices::SLICES, slices::GROUP_ENTRIES),
            (slices::SLICE_COUNTERS, slices::GROUP_ENTRIES),
            (slices::HOLD_BUDGETS, slices::GROUP_ENTRIES + PEERS),
        ]
    }
}

/// Returns the capacities of the tables of NAT, whose entries nobody uses without it.
fn nat_capacities(settings: &Settings) -> [usize; 3] {
    let plan = NatPlan::new(settings);
    match plan.blocks() {
        0 => [1; 3],
        blocks => [settings.sessions, blocks, plan.buckets()].map(|it| it as usize),
    }
}

/// Returns the number of responses that are sent in N1 times T1, the time during which they can be
/// requested again.
fn answers(settings: &Settings) -> usize {
    let life_ms = settings.n4.t1_ms.saturating_mul(settings.n4.n1.into()).min(60_000) as usize;
    (ANSWERS_PER_MS * life_ms).clamp(FEWEST_ANSWERS, 1 << 20)
}

/// Memory of tables by name, created on first use. Lanes can attach readers to
/// [`memory`](Self::memory).
#[derive(Debug)]
pub struct Private {
    capacities: BTreeMap<&'static str, usize>,
    made: Mutex<BTreeMap<String, Arc<SharedMemory>>>,
    readers: Arc<Readers>,
}

impl Private {
    /// Creates the memory with lanes that must pass a turn before entries are reused.
    #[must_use]
    pub fn new(most: Capacities, readers: Arc<Readers>) -> Self {
        let capacities = BTreeMap::from(most.by_table());
        Self { capacities, made: Mutex::default(), readers }
    }

    /// Returns the lanes.
    #[must_use]
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Returns the memory of a table, to attach to.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn memory(
        &self,
        name: &str,
        spec: impl FnOnce(usize) -> Spec,
    ) -> Result<Arc<SharedMemory>, TableError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = made.get(name) {
            return Ok(Arc::clone(memory));
        }
        let capacity = self.capacities.get(name).copied().unwrap_or(1).max(1);
        let memory = spec(capacity).create()?;
        made.insert(name.to_owned(), Arc::clone(&memory));
        Ok(memory)
    }

    /// Opens the writer of a table. If a former writer exists, the table continues in a copy of its
    /// memory.
    fn writer<W: Send + 'static>(
        &self,
        name: &str,
        spec: impl FnOnce(usize) -> Spec,
        attach: impl Fn(&Arc<SharedMemory>, &Arc<Readers>) -> Result<W, TableError>,
    ) -> Result<BoxedWriter<W>, TableError> {
        let mut memory = self.memory(name, spec)?;
        let writer = attach_successor(&mut memory, |memory| attach(memory, &self.readers))?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), memory);
        Ok(Box::new(Box::new(writer)))
    }

    /// Opens the writer of a record.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn record<V: Value>(&self, name: &str) -> Result<BoxedWriter<RecordWriter<V>>, TableError> {
        self.writer(name, |_| Spec::record::<V>(name), RecordWriter::attach)
    }

    /// Opens the writer of an array.
    ///
    /// # Errors
    /// If memory is insufficient, or it holds another kind of table.
    pub fn array<V: Value>(&self, name: &str) -> Result<BoxedWriter<ArrayWriter<V>>, TableError> {
        let spec = |capacity| Spec::array::<V>(name, capacity);
        self.writer(name, spec, ArrayWriter::attach)
    }

    /// Opens the writer of an exact-match table.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn hash<K: Key, V: Value>(
        &self,
        name: &str,
    ) -> Result<BoxedWriter<HashWriter<K, V>>, TableError> {
        let spec = |capacity| Spec::hash::<K, V>(name, capacity);
        self.writer(name, spec, HashWriter::attach)
    }

    /// Opens the writer of a table of IPv4 prefixes.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn lpm4(&self, name: &str) -> Result<BoxedWriter<Lpm4Writer>, TableError> {
        let spec = |capacity| Spec::lpm4(name, capacity);
        self.writer(name, spec, Lpm4Writer::attach)
    }

    /// Opens the writer of a table of IPv6 prefixes.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn lpm6(&self, name: &str) -> Result<BoxedWriter<Lpm6Writer>, TableError> {
        let spec = |capacity| Spec::lpm6(name, capacity);
        self.writer(name, spec, Lpm6Writer::attach)
    }

    /// Opens the reader of lane state.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn state<const W: usize>(&self, name: &str) -> Result<State<W>, TableError> {
        State::attach(&self.memory(name, |capacity| Spec::state::<W>(name, capacity, 0))?)
    }

    /// Opens pending events.
    ///
    /// # Errors
    /// The same as of [`array`](Self::array).
    pub fn pending(&self, name: &str) -> Result<Pending, TableError> {
        Pending::attach(&self.memory(name, |capacity| Spec::pending(name, capacity, 0))?)
    }
}

/// Attaches a writer to the table in `memory`. If a former writer of this process exists, it keeps
/// its memory, and the new one gets a copy: what a killed process would have left.
pub(crate) fn attach_successor<W>(
    memory: &mut Arc<SharedMemory>,
    attach: impl Fn(&Arc<SharedMemory>) -> Result<W, TableError>,
) -> Result<W, TableError> {
    match attach(memory) {
        Err(TableError::HasWriter(table)) => {
            let failed = |source| TableError::Memory { table, source };
            *memory = Arc::new(copy(memory).map_err(failed)?);
            attach(memory)
        }
        other => other,
    }
}

/// Copies what was ever written in a memory.
fn copy(memory: &SharedMemory) -> std::io::Result<SharedMemory> {
    let copy = SharedMemory::create("upf-successor", memory.len())?;
    let [from, to] = [memory, &copy].map(|it| it.as_fd().try_clone_to_owned().map(File::from));
    let (from, to, mut octets) = (from?, to?, Vec::new());
    let mut end = 0;
    // Fails at the end of the data.
    while let Ok(start) = seek(&from, SeekFrom::Data(end)) {
        end = seek(&from, SeekFrom::Hole(start))?;
        octets.resize((end - start) as usize, 0);
        from.read_exact_at(&mut octets, start)?;
        to.write_all_at(&octets, start)?;
    }
    Ok(copy)
}
