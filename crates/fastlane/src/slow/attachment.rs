//! Attachment: the connection of a slow path, and the tables and rings granted over it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_table::{
    AnyState, GracePeriods, Pending, Readers, Reset, SharedMemory, Spec, Stall, TableError, entries,
};

use super::granted_rings::GrantedRings;
use super::{SlowError, TableSummary};
use crate::session::{Client, Kind, TableList, Write};
use crate::table_readers;
use crate::tables::{Role, TableFacts};
use crate::write_lock;

/// Time for which a result of [`Client::is_alive`] is reused.
const MAX_AGE: Duration = Duration::from_millis(1);

/// Connection and grants. Grants are dropped before the connection.
#[derive(Debug)]
pub(super) struct Attachment {
    leases: Mutex<BTreeMap<String, Lease>>,
    rings: Mutex<Option<GrantedRings>>,
    /// Lanes that must pass a quiescent state before a writer reuses memory.
    readers: Arc<Readers>,
    pub(super) client: Arc<Client>,
}

/// Write access to a table.
#[derive(Debug)]
struct Lease {
    parts: Vec<(Role, Arc<SharedMemory>)>,
    /// True while a writer of this process uses it.
    is_used: bool,
}

/// State that a writer zeroes when it removes an entry.
pub(super) type Resets = Vec<Box<dyn Reset + Send + Sync>>;

impl Attachment {
    pub(super) fn new(client: Client) -> Self {
        let client = Arc::new(client);
        let liveness =
            Liveness { client: Arc::clone(&client), last: Mutex::new(Some(Instant::now())) };
        let readers = table_readers::of_session(&client.counters, move || liveness.runs());
        let readers = readers.on_stall(log_stall);
        let (leases, rings, readers) = (Mutex::default(), Mutex::default(), Arc::new(readers));
        Self { leases, rings, readers, client }
    }

    /// Returns a summary of all tables.
    pub(super) fn tables(&self) -> Result<Vec<TableSummary>, SlowError> {
        let (list, descriptors): (TableList, _) = self.client.ask(Kind::Tables, &())?;
        let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
        let summary = |facts: &TableFacts| {
            let parts = map(facts, &mut descriptors, SharedMemory::attach_read_only)?;
            let any = parts.first().map(|(_, part)| Spec::of(part)).transpose()?;
            let table = find(&parts, Role::Table);
            let kind = table.as_ref().and(any.as_ref()).map_or("", |spec| kind_name(spec.kind));
            Ok(TableSummary {
                name: facts.name.clone(),
                kind,
                entries: table.as_ref().map(entries).transpose()?.unwrap_or(0),
                capacity: any.map_or(0, |spec| spec.capacity),
                has_state: find(&parts, Role::State).is_some(),
                has_pending: find(&parts, Role::Pending).is_some(),
                writer: facts.writer.clone(),
            })
        };
        list.tables.iter().map(summary).collect()
    }

    /// Maps a part of a table read-only.
    pub(super) fn readable(&self, table: &str, role: Role) -> Result<Arc<SharedMemory>, SlowError> {
        let (list, descriptors): (TableList, _) = self.client.ask(Kind::Tables, &())?;
        let parts = parts(table, &list, descriptors, SharedMemory::attach_read_only)?;
        find(&parts, role).ok_or_else(|| absent(table, role, &list))
    }

    /// Returns a part of a table, writable. The first call leases the table.
    pub(super) fn writable(&self, table: &str, role: Role) -> Result<Arc<SharedMemory>, SlowError> {
        let mut leases = self.leases();
        let lease = self.lease(&mut leases, table)?;
        find(&lease.parts, role).ok_or_else(|| absent(table, role, &TableList::default()))
    }

    /// Creates the writer of a table. [`release`](Self::release) allows the next one.
    pub(super) fn write<W>(
        &self,
        table: &str,
        make: impl FnOnce(&Arc<SharedMemory>, &Arc<Readers>, Resets) -> Result<W, TableError>,
    ) -> Result<W, SlowError> {
        let mut leases = self.leases();
        let lease = self.lease(&mut leases, table)?;
        if lease.is_used {
            return Err(SlowError::AlreadyWriter { table: table.to_owned() });
        }
        let part = find(&lease.parts, Role::Table);
        let part = part.ok_or_else(|| absent(table, Role::Table, &TableList::default()))?;
        let resets = lease.parts.iter().filter_map(|(role, part)| match role {
            Role::Table => None,
            Role::State => Some(AnyState::attach(part).map(|it| Box::new(it) as Box<_>)),
            Role::Pending => Some(Pending::attach(part).map(|it| Box::new(it) as Box<_>)),
        });
        let resets = resets.collect::<Result<Resets, TableError>>()?;
        let writer = make(&part, &self.readers, resets)?;
        lease.is_used = true;
        Ok(writer)
    }

    /// Returns the lease of a table; the first call requests it.
    fn lease<'a>(
        &self,
        leases: &'a mut BTreeMap<String, Lease>,
        table: &str,
    ) -> Result<&'a mut Lease, SlowError> {
        let free = match leases.entry(table.to_owned()) {
            Entry::Occupied(lease) => return Ok(lease.into_mut()),
            Entry::Vacant(free) => free,
        };
        let request = Write { tables: vec![table.to_owned()] };
        let (list, descriptors): (TableList, _) = self.client.ask(Kind::Write, &request)?;
        let parts = parts(table, &list, descriptors, write_lock::attach)?;
        Ok(free.insert(Lease { parts, is_used: false }))
    }

    /// Allows another writer of a table in this process, after the last one was dropped.
    pub(super) fn release(&self, table: &str) {
        if let Some(lease) = self.leases().get_mut(table) {
            lease.is_used = false;
        }
    }

    pub(super) fn grace_periods(&self) -> GracePeriods {
        GracePeriods::new(Arc::clone(&self.readers))
    }

    pub(super) fn rings(&self) -> MutexGuard<'_, Option<GrantedRings>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<String, Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_stall(stall: Stall) {
    match stall {
        Stall::Began(lane) => tracing::warn!(
            "lane {lane} has passed no turn for 1 s, so memory of removed entries is not free; \
             writes that need it fail at once until the lane goes on; see why its application \
             does not return, or restart it"
        ),
        Stall::Ended(lane) => tracing::info!("lane {lane} passes turns again"),
    }
}

/// Check of whether the application still runs, at most once per [`MAX_AGE`].
struct Liveness {
    client: Arc<Client>,
    /// Time of the last positive check; `None` after the end.
    last: Mutex<Option<Instant>>,
}

impl Liveness {
    fn runs(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *last {
            Some(seen) if now.duration_since(seen) < MAX_AGE => {}
            Some(_) => *last = self.client.is_alive().then_some(now),
            None => {}
        }
        last.is_some()
    }
}

/// Mapped parts of a table.
type Parts = Vec<(Role, Arc<SharedMemory>)>;

/// Maps the parts of the named table of a reply.
fn parts(
    table: &str,
    list: &TableList,
    descriptors: Vec<OwnedFd>,
    attach: impl Fn(OwnedFd) -> std::io::Result<SharedMemory>,
) -> Result<Parts, SlowError> {
    let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
    let facts = list.tables.iter().find(|facts| facts.name == table);
    map(facts.ok_or_else(|| absent(table, Role::Table, list))?, &mut descriptors, attach)
}

/// Maps the parts of one table and takes their descriptors out of the list.
fn map(
    facts: &TableFacts,
    descriptors: &mut [Option<OwnedFd>],
    attach: impl Fn(OwnedFd) -> std::io::Result<SharedMemory>,
) -> Result<Parts, SlowError> {
    let parts = facts.parts.iter().map(|part| {
        let descriptor = descriptors.get_mut(part.descriptor).and_then(Option::take);
        let descriptor = descriptor.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into());
        let what = format!("table `{}`", facts.name);
        let memory = descriptor.map_err(|source| SlowError::Map { what: what.clone(), source })?;
        let memory = attach(memory).map_err(|source| match write_lock::writer(&source) {
            Some(writer) => SlowError::Written { what: what.clone(), writer: writer.to_owned() },
            None => SlowError::Map { what, source },
        })?;
        Ok((part.role, Arc::new(memory)))
    });
    parts.collect()
}

/// Returns the name of a kind of table.
fn kind_name(kind: fastlane_table::Kind) -> &'static str {
    match kind {
        fastlane_table::Kind::Hash => "hash",
        fastlane_table::Kind::Array => "array",
        fastlane_table::Kind::Lpm4 => "lpm4",
        fastlane_table::Kind::Lpm6 => "lpm6",
        fastlane_table::Kind::Classifier => "classifier",
        fastlane_table::Kind::State | fastlane_table::Kind::Pending => "",
    }
}

fn find(parts: &[(Role, Arc<SharedMemory>)], role: Role) -> Option<Arc<SharedMemory>> {
    parts.iter().find(|(other, _)| *other == role).map(|(_, part)| Arc::clone(part))
}

fn absent(table: &str, role: Role, list: &TableList) -> SlowError {
    let what = match role {
        Role::Table => "table",
        Role::State => "lane state",
        Role::Pending => "pending events",
    };
    let known = list.tables.iter().any(|facts| facts.name == table) || list.tables.is_empty();
    let remedy = if known {
        "let the application request it when it is created".to_owned()
    } else {
        let names: Vec<&str> = list.tables.iter().map(|facts| facts.name.as_str()).collect();
        format!("there are {}", names.join(", "))
    };
    SlowError::NoTable { table: table.to_owned(), what, remedy }
}
