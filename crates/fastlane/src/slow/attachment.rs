//! What an application has granted to this program.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_table::{AnyState, Pending, Readers, Reset, SharedMemory, Spec, TableError, entries};

use super::alone;
use super::messages::Rings;
use super::writer::Writer;
use super::{SlowError, TableSummary};
use crate::session::{Client, Kind, Role, TableFacts, TableList, Write};

/// For how long a writer believes that the application is still there.
const TRUST: Duration = Duration::from_millis(1);

/// The connection, and what came by it, which goes before the connection does.
#[derive(Debug)]
pub(super) struct Attachment {
    leases: Mutex<BTreeMap<String, Lease>>,
    rings: Mutex<Option<Rings>>,
    /// The lanes that must pass a turn before a writer uses memory again.
    readers: Arc<Readers>,
    pub(super) client: Arc<Client>,
}

/// The right to write a table.
#[derive(Debug)]
struct Lease {
    parts: Vec<(Role, Arc<SharedMemory>)>,
    /// Whether somebody here is the writer.
    is_used: bool,
}

type Resets = Vec<Box<dyn Reset + Send + Sync>>;

impl Attachment {
    pub(super) fn new(client: Client) -> Self {
        let client = Arc::new(client);
        let watch = Watch { client: Arc::clone(&client), last: Mutex::new(Some(Instant::now())) };
        let readers = Readers::lanes_while(&client.counters, move || watch.runs());
        let (leases, rings, readers) = (Mutex::default(), Mutex::default(), Arc::new(readers));
        Self { leases, rings, readers, client }
    }

    /// All tables, for people.
    pub(super) fn tables(&self) -> Result<Vec<TableSummary>, SlowError> {
        let (list, descriptors): (TableList, _) = self.client.ask(Kind::Tables, &())?;
        let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
        let summary = |facts: &TableFacts| {
            let parts = map(facts, &mut descriptors, SharedMemory::attach_read_only)?;
            let any = parts.first().map(|(_, part)| Spec::of(part)).transpose()?;
            let table = find(&parts, Role::Table);
            let kind = table.as_ref().and(any.as_ref()).map_or("", |spec| word(spec.kind));
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

    /// A part of a table, to be read.
    pub(super) fn readable(&self, table: &str, role: Role) -> Result<Arc<SharedMemory>, SlowError> {
        let (list, descriptors): (TableList, _) = self.client.ask(Kind::Tables, &())?;
        let parts = parts(table, &list, descriptors, SharedMemory::attach_read_only)?;
        find(&parts, role).ok_or_else(|| absent(table, role, &list))
    }

    /// A part of a table, to be written: from now on nobody else does, if this is the first.
    pub(super) fn writable(&self, table: &str, role: Role) -> Result<Arc<SharedMemory>, SlowError> {
        let mut leases = self.leases();
        let lease = self.lease(&mut leases, table)?;
        find(&lease.parts, role).ok_or_else(|| absent(table, role, &TableList::default()))
    }

    /// Makes the writer of a table.
    pub(super) fn write<W>(
        self: &Arc<Self>,
        table: &str,
        make: impl FnOnce(&Arc<SharedMemory>, &Arc<Readers>, Resets) -> Result<W, TableError>,
    ) -> Result<Writer<W>, SlowError> {
        let mut leases = self.leases();
        let lease = self.lease(&mut leases, table)?;
        if lease.is_used {
            return Err(SlowError::Written { table: table.to_owned() });
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
        Ok(Writer::new(writer, table, Arc::clone(self)))
    }

    /// The lease of a table, asked for now if it was not before.
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
        let parts = parts(table, &list, descriptors, alone::attach)?;
        Ok(free.insert(Lease { parts, is_used: false }))
    }

    /// The writer of a table was dropped; there may be another one here.
    pub(super) fn unuse(&self, table: &str) {
        if let Some(lease) = self.leases().get_mut(table) {
            lease.is_used = false;
        }
    }

    pub(super) fn readers(&self) -> Arc<Readers> {
        Arc::clone(&self.readers)
    }

    pub(super) fn rings(&self) -> MutexGuard<'_, Option<Rings>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<String, Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks whether the application runs.
struct Watch {
    client: Arc<Client>,
    /// When it was seen last; `None` after its end.
    last: Mutex<Option<Instant>>,
}

impl Watch {
    fn runs(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *last {
            Some(seen) if now.duration_since(seen) < TRUST => {}
            Some(_) => *last = self.client.is_alive().then_some(now),
            None => {}
        }
        last.is_some()
    }
}

type Parts = Vec<(Role, Arc<SharedMemory>)>;

/// Maps the parts of a table that came in an answer.
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

/// Maps the parts of one table, whose descriptors are taken.
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
        let memory = attach(memory).map_err(|source| match alone::writer(&source) {
            Some(process) => SlowError::StillWritten { what: what.clone(), process },
            None => SlowError::Map { what, source },
        })?;
        Ok((part.role, Arc::new(memory)))
    });
    parts.collect()
}

/// A kind of table in a word.
fn word(kind: fastlane_table::Kind) -> &'static str {
    match kind {
        fastlane_table::Kind::Hash => "hash",
        fastlane_table::Kind::Array => "array",
        fastlane_table::Kind::Lpm4 => "lpm4",
        fastlane_table::Kind::Lpm6 => "lpm6",
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
    let there = if known {
        "let it ask for it in its factory".to_owned()
    } else {
        let names: Vec<&str> = list.tables.iter().map(|facts| facts.name.as_str()).collect();
        format!("there are {}", names.join(", "))
    };
    SlowError::NoTable { table: table.to_owned(), what, there }
}
