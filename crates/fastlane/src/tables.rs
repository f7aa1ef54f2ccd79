//! Tables of an application: created when the first lane asks for them, or inherited from the
//! previous process.
//!
//! Lanes map tables read-only, and map what they write (lane state, pending events) writable. A
//! slow path gets read-only descriptors, or writable ones if it is the writer of the table.
//!
//! # A killed slow path
//! This process holds the memory of all tables, so lanes go on with what a slow path had published
//! when it was killed. The kernel releases its write lock (`write_lock.rs`), and a successor gets
//! the same descriptors. Attaching as the writer repairs what was unfinished (`HashWriter::attach`,
//! `ArrayWriter::attach` and the prefix tables' `lpm_attach.rs`); pending events and messages that
//! were not received are still there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_table::{SharedMemory, Spec, TableError};
use prometheus_client::collector::Collector;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::diagnostic::nearest_word;
use crate::metrics::{ApplicationMetrics, MetricSource, OutcomeMetrics, OutcomeSource, Outcomes};
use crate::write_lock;

/// Role of a part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Entries that the slow path writes and the lanes read.
    Table,
    /// Words for each entry that the lanes write and the slow path reads.
    State,
    /// Events of entries that must not be lost.
    Pending,
}

/// Description of a table, as passed to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TableFacts {
    pub(crate) name: String,
    pub(crate) parts: Vec<PartFacts>,
    /// The program that writes it.
    pub(crate) writer: Option<String>,
}

/// Description of a part of a table. Its layout is in the header of the memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct PartFacts {
    pub(crate) role: Role,
    /// Index of the descriptor among those of the message.
    pub(crate) descriptor: usize,
}

/// All tables of an application.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Configured capacities by name.
    capacities: BTreeMap<String, usize>,
    created: Mutex<BTreeMap<String, Vec<Part>>>,
    /// Parts inherited from the previous process that no lane has asked for yet.
    inherited: Mutex<Vec<InheritedPart>>,
    /// Lane state that counts packets by outcome, by name.
    outcomes: Mutex<BTreeMap<String, Outcomes>>,
    /// Counts of outcomes outside of lanes, by name of the table.
    outcome_sources: Mutex<BTreeMap<String, OutcomeSource>>,
    /// Other metrics of the application, by name of the table.
    metric_sources: Mutex<BTreeMap<String, MetricSource>>,
}

/// Part of a table that exists.
#[derive(Debug)]
struct Part {
    role: Role,
    spec: Spec,
    /// Mapping for the lanes.
    memory: Arc<SharedMemory>,
    to_read: Arc<OwnedFd>,
    to_write: Arc<OwnedFd>,
    /// True if it was inherited.
    is_inherited: bool,
}

/// Part of a table inherited from the previous process.
#[derive(Debug)]
pub(crate) struct InheritedPart {
    pub(crate) table: String,
    pub(crate) role: Role,
    /// Writable descriptor.
    pub(crate) descriptor: OwnedFd,
}

impl Tables {
    /// Prepares tables with these capacities. They are taken from `inherited` or created when a
    /// lane asks for them.
    pub(crate) fn new(capacities: BTreeMap<String, usize>, inherited: Vec<InheritedPart>) -> Self {
        let inherited = Mutex::new(inherited);
        let created = Mutex::default();
        let (outcomes, outcome_sources) = (Mutex::default(), Mutex::default());
        let metric_sources = Mutex::default();
        Self { capacities, created, inherited, outcomes, outcome_sources, metric_sources }
    }

    /// Returns the memory of a part of a table; the first call creates it. `spec` gives its layout
    /// for the configured capacity.
    ///
    /// # Errors
    /// Fails if the table is not configured, has another layout, or no memory is available.
    pub(crate) fn part(
        &self,
        name: &str,
        role: Role,
        spec: impl FnOnce(usize) -> Spec,
    ) -> Result<Arc<SharedMemory>, Error> {
        let capacity = *self.capacities.get(name).ok_or_else(|| self.missing(name))?;
        let spec = spec(capacity);
        let mut created = self.created();
        let parts = created.entry(name.to_owned()).or_default();
        if let Some(part) = parts.iter().find(|part| part.role == role) {
            same(&part.spec, &spec).map_err(|what| refuse(name, &what))?;
            return Ok(Arc::clone(&part.memory));
        }
        let part = match self.take_inherited(name, role, &spec) {
            Some(part) => part,
            None => Part::create(role, spec).map_err(|error| refuse(name, &error.to_string()))?,
        };
        let memory = Arc::clone(&part.memory);
        parts.push(part);
        Ok(memory)
    }

    /// Takes an inherited part if it has the layout `spec`.
    fn take_inherited(&self, name: &str, role: Role, spec: &Spec) -> Option<Part> {
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        let index = inherited.iter().position(|part| part.table == name && part.role == role)?;
        let InheritedPart { descriptor, .. } = inherited.swap_remove(index);
        match Part::adopt(role, spec, descriptor) {
            Ok(part) => {
                tracing::info!("table `{name}`: inherited from the previous process");
                Some(part)
            }
            Err(reason) => {
                tracing::warn!("table `{name}`: it starts empty: the inherited one {reason}");
                None
            }
        }
    }

    fn missing(&self, name: &str) -> Error {
        let names = self.capacities.keys().map(String::as_str);
        let meant = nearest_word(name, names.clone());
        let configured = match names.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none is configured".to_owned(),
            names => format!("configured are {names}"),
        };
        let hint = meant.as_ref().map(|meant| format!("; did you mean `{meant}`?"));
        let what = format!(
            "the application needs a table `{name}`, {configured}; write `\"tables\": {{ \
             \"{name}\": {{ \"capacity\": 1024 }} }}`{}",
            hint.unwrap_or_default()
        );
        Error::Value { path: "tables".to_owned(), what, meant }
    }

    /// Registers lane state that counts packets by outcome.
    pub(crate) fn set_outcomes(&self, name: &str, outcomes: Outcomes) {
        let mut all = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.to_owned(), outcomes);
    }

    /// Registers counts of outcomes outside of lanes.
    pub(crate) fn set_outcome_source(&self, name: &str, source: OutcomeSource) {
        let mut all = self.outcome_sources.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.to_owned(), source);
    }

    /// Registers other metrics.
    pub(crate) fn set_metric_source(&self, name: &str, source: MetricSource) {
        let mut all = self.metric_sources.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.to_owned(), source);
    }

    /// Returns the collectors of what the application has registered.
    pub(crate) fn collectors(&self) -> [Box<dyn Collector>; 2] {
        let metrics = self.metric_sources.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = ApplicationMetrics(metrics.values().cloned().collect());
        [Box::new(self.outcome_metrics()), Box::new(metrics)]
    }

    /// Returns the metrics of all outcomes.
    fn outcome_metrics(&self) -> OutcomeMetrics {
        let lanes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self.outcome_sources.lock().unwrap_or_else(PoisonError::into_inner);
        let (lanes, sources) = (lanes.values().cloned(), sources.values().cloned());
        OutcomeMetrics { lanes: lanes.collect(), sources: sources.collect() }
    }

    /// Closes inherited parts that no lane has asked for.
    pub(crate) fn drop_unused(&self) {
        self.inherited.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the configured tables that no lane has asked for.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let created = self.created();
        let unused = self.capacities.keys().filter(|name| !created.contains_key(*name));
        unused.map(String::as_str).collect()
    }

    /// Returns all tables with read-only descriptors, and the program that writes each.
    pub(crate) fn to_read(&self) -> (Vec<TableFacts>, Vec<Arc<OwnedFd>>) {
        let mut descriptors = Vec::new();
        let created = self.created();
        let tables = created.iter().map(|(name, parts)| {
            let mut locked = parts.iter().map(|part| part.to_write.as_fd());
            let writer = locked.find_map(write_lock::holder);
            facts(name, parts, writer, &mut descriptors, |part| &part.to_read)
        });
        (tables.collect(), descriptors)
    }

    /// Returns the named tables with writable descriptors.
    ///
    /// # Errors
    /// Names the first table that does not exist.
    pub(crate) fn to_write(
        &self,
        names: &[String],
    ) -> Result<(Vec<TableFacts>, Vec<Arc<OwnedFd>>), String> {
        let mut descriptors = Vec::new();
        let created = self.created();
        let tables = names.iter().map(|name| {
            let parts = created.get(name).ok_or_else(|| {
                let names: Vec<&str> = created.keys().map(String::as_str).collect();
                format!("there is no table `{name}`; there are {}", names.join(", "))
            })?;
            Ok(facts(name, parts, None, &mut descriptors, |part| &part.to_write))
        });
        let tables = tables.collect::<Result<_, String>>()?;
        Ok((tables, descriptors))
    }

    /// Returns all tables with writable descriptors.
    pub(crate) fn to_hand_over(&self) -> (Vec<TableFacts>, Vec<Arc<OwnedFd>>) {
        let mut descriptors = Vec::new();
        let created = self.created();
        let tables = created
            .iter()
            .map(|(name, parts)| facts(name, parts, None, &mut descriptors, |part| &part.to_write));
        (tables.collect(), descriptors)
    }

    /// Returns true if all parts of all tables were inherited.
    pub(crate) fn are_inherited(&self) -> bool {
        self.created().values().flatten().all(|part| part.is_inherited)
    }

    fn created(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Part>>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn create(role: Role, spec: Spec) -> Result<Self, TableError> {
        let memory = spec.create()?;
        let failed = |source| TableError::Memory { table: spec.name.clone(), source };
        let descriptor = memory.as_fd().try_clone_to_owned().map_err(failed)?;
        drop(memory); // lanes get their own mappings
        Self::new(role, &spec, descriptor).map_err(failed)
    }

    /// Adopts inherited memory, which must have the layout `expected`.
    fn adopt(role: Role, expected: &Spec, descriptor: OwnedFd) -> Result<Self, String> {
        let adopt = |descriptor: OwnedFd| Self::new(role, expected, descriptor);
        let part = adopt(descriptor).map_err(|error| format!("cannot be mapped ({error})"))?;
        let found = Spec::of(&part.memory).map_err(|error| format!("is unsound ({error})"))?;
        same(&found, expected).map_err(|what| format!("differs ({what})"))?;
        Ok(Self { is_inherited: true, ..part })
    }

    fn new(role: Role, spec: &Spec, to_write: OwnedFd) -> std::io::Result<Self> {
        let to_read = read_only(to_write.as_fd())?;
        let memory = match role {
            Role::Table => SharedMemory::attach_read_only(to_read.try_clone()?)?,
            Role::State | Role::Pending => SharedMemory::attach_writable(to_write.try_clone()?)?,
        };
        // Lanes write all of their state, and read what a table has.
        match role {
            Role::Table => memory.map_resident(),
            Role::State | Role::Pending => drop(memory.populate()?),
        }
        let (to_read, to_write) = (Arc::new(to_read), Arc::new(to_write));
        let (spec, memory, is_inherited) = (spec.clone(), Arc::new(memory), false);
        Ok(Self { role, spec, memory, to_read, to_write, is_inherited })
    }
}

/// Describes a table and appends the descriptors of its parts to `descriptors`.
fn facts<'a>(
    name: &str,
    parts: &'a [Part],
    writer: Option<String>,
    descriptors: &mut Vec<Arc<OwnedFd>>,
    descriptor: impl Fn(&'a Part) -> &'a Arc<OwnedFd>,
) -> TableFacts {
    let parts = parts.iter().map(|part| {
        descriptors.push(Arc::clone(descriptor(part)));
        PartFacts { role: part.role, descriptor: descriptors.len() - 1 }
    });
    TableFacts { name: name.to_owned(), parts: parts.collect(), writer }
}

/// Checks that two parts have the same layout.
///
/// # Errors
/// The first difference.
fn same(one: &Spec, other: &Spec) -> Result<(), String> {
    if one.kind != other.kind {
        return Err(format!("its kind is {:?}, requested is {:?}", one.kind, other.kind));
    }
    let fields = |spec: &Spec| {
        let types = (spec.type_hash, spec.groups);
        [spec.key, spec.value, spec.align, spec.capacity, spec.lanes, types.0 as usize, types.1]
    };
    let names = ["key size", "value size", "alignment", "capacity", "lanes", "types", "groups"];
    let mut both = names.iter().zip(fields(one).into_iter().zip(fields(other)));
    match both.find(|(_, (one, other))| one != other) {
        Some((name, (one, other))) => Err(format!("its {name} is {one}, requested is {other}")),
        None => Ok(()),
    }
}

fn refuse(table: &str, what: &str) -> Error {
    let path = format!("tables.{table}");
    Error::Value { path, what: what.to_owned(), meant: None }
}

/// Reopens memory through a read-only descriptor. This prevents accidental writes only: a process
/// of the same user could reopen it writable through `/proc`.
pub(crate) fn read_only(memory: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests;
