//! The tables of an application: made once, when its first lane asks for them.
//!
//! The lanes read tables through a mapping that cannot write; what lanes write (lane state, pending
//! events) is mapped for writing. A slow path gets descriptors: those of tables to read, or as
//! their one writer descriptors of the same memory that can write.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_table::{SharedMemory, Spec, TableError};

use crate::Error;
use crate::config::read::nearest_of;
use crate::session::{PartFacts, Role, TableFacts, read_only};

/// All tables.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The capacities that are configured.
    planned: BTreeMap<String, usize>,
    made: Mutex<BTreeMap<String, Vec<Part>>>,
    /// What was kept of an application before this one.
    kept: Mutex<Vec<KeptPart>>,
}

/// A part of a table that was made.
#[derive(Debug)]
struct Part {
    role: Role,
    spec: Spec,
    /// As lanes map it.
    memory: Arc<SharedMemory>,
    to_read: Arc<OwnedFd>,
    to_write: Arc<OwnedFd>,
    /// Whether an application before this one had it.
    is_kept: bool,
}

/// A part of a table that outlived its application.
#[derive(Debug)]
pub(crate) struct KeptPart {
    pub(crate) table: String,
    pub(crate) role: Role,
    /// To write.
    pub(crate) descriptor: OwnedFd,
}

impl Tables {
    /// Those of a configuration, to be made when they are asked for, or taken from `kept`.
    pub(crate) fn new(planned: BTreeMap<String, usize>, kept: Vec<KeptPart>) -> Self {
        Self { planned, made: Mutex::default(), kept: Mutex::new(kept) }
    }

    /// The memory of a part of a table, made now if nobody has asked before. `spec` says what it is
    /// with the configured capacity.
    pub(crate) fn part(
        &self,
        name: &str,
        role: Role,
        spec: impl FnOnce(usize) -> Spec,
    ) -> Result<Arc<SharedMemory>, Error> {
        let capacity = *self.planned.get(name).ok_or_else(|| self.missing(name))?;
        let spec = spec(capacity);
        let mut made = self.made();
        let parts = made.entry(name.to_owned()).or_default();
        if let Some(part) = parts.iter().find(|part| part.role == role) {
            same(&part.spec, &spec).map_err(|what| refuse(name, &what))?;
            return Ok(Arc::clone(&part.memory));
        }
        let part = match self.take_kept(name, role, &spec) {
            Some(part) => part,
            None => Part::create(role, spec).map_err(|error| refuse(name, &error.to_string()))?,
        };
        let memory = Arc::clone(&part.memory);
        parts.push(part);
        Ok(memory)
    }

    /// Uses a part that was kept, if it is what is wanted now.
    fn take_kept(&self, name: &str, role: Role, spec: &Spec) -> Option<Part> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|part| part.table == name && part.role == role)?;
        let KeptPart { descriptor, .. } = kept.swap_remove(place);
        match Part::adopt(role, spec, descriptor) {
            Ok(part) => {
                tracing::info!("table `{name}`: kept from the application before");
                Some(part)
            }
            Err(reason) => {
                tracing::warn!("table `{name}`: it begins empty, for what was kept {reason}");
                None
            }
        }
    }

    fn missing(&self, name: &str) -> Error {
        let names = self.planned.keys().map(String::as_str);
        let meant = nearest_of(name, names.clone());
        let there = match names.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "there are none".to_owned(),
            names => format!("there are {names}"),
        };
        let hint = meant.as_ref().map(|meant| format!("; did you mean `{meant}`?"));
        let what = format!(
            "the application needs a table `{name}`, {there}; write `\"tables\": {{ \"{name}\": {{ \
             \"capacity\": 1024 }} }}`{}",
            hint.unwrap_or_default()
        );
        Error::Value { path: "tables".to_owned(), what, meant }
    }

    /// Gives up what was kept and nobody has asked for.
    pub(crate) fn forget(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The configured tables that nobody has asked for.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let made = self.made();
        let unused = self.planned.keys().filter(|name| !made.contains_key(*name));
        unused.map(String::as_str).collect()
    }

    /// All of them with what can be read of them, and the descriptors.
    pub(crate) fn to_read(
        &self,
        writer: impl Fn(&str) -> Option<String>,
    ) -> (Vec<TableFacts>, Vec<Arc<OwnedFd>>) {
        let mut descriptors = Vec::new();
        let made = self.made();
        let tables = made.iter().map(|(name, parts)| {
            facts(name, parts, writer(name), &mut descriptors, |part| &part.to_read)
        });
        (tables.collect(), descriptors)
    }

    /// These, with descriptors that can write.
    pub(crate) fn to_write(
        &self,
        names: &[String],
    ) -> Result<(Vec<TableFacts>, Vec<Arc<OwnedFd>>), String> {
        let mut descriptors = Vec::new();
        let made = self.made();
        let tables = names.iter().map(|name| {
            let parts = made.get(name).ok_or_else(|| {
                let names: Vec<&str> = made.keys().map(String::as_str).collect();
                format!("there is no table `{name}`; there are {}", names.join(", "))
            })?;
            Ok(facts(name, parts, None, &mut descriptors, |part| &part.to_write))
        });
        let tables = tables.collect::<Result<_, String>>()?;
        Ok((tables, descriptors))
    }

    /// All of them, with descriptors that can write.
    pub(crate) fn to_keep(&self) -> (Vec<TableFacts>, Vec<Arc<OwnedFd>>) {
        let mut descriptors = Vec::new();
        let made = self.made();
        let tables = made
            .iter()
            .map(|(name, parts)| facts(name, parts, None, &mut descriptors, |part| &part.to_write));
        (tables.collect(), descriptors)
    }

    /// Whether all that there is was there in an application before this one.
    pub(crate) fn are_kept(&self) -> bool {
        self.made().values().flatten().all(|part| part.is_kept)
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Part>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn create(role: Role, spec: Spec) -> Result<Self, TableError> {
        let memory = spec.create()?;
        let failed = |source| TableError::Memory { table: spec.name.clone(), source };
        let descriptor = memory.as_fd().try_clone_to_owned().map_err(failed)?;
        drop(memory); // the lanes get mappings of their own
        Self::new(role, &spec, descriptor).map_err(failed)
    }

    /// Of memory that was kept: it must be like this.
    fn adopt(role: Role, expected: &Spec, descriptor: OwnedFd) -> Result<Self, String> {
        let adopt = |descriptor: OwnedFd| Self::new(role, expected, descriptor);
        let part = adopt(descriptor).map_err(|error| format!("cannot be mapped ({error})"))?;
        let found = Spec::of(&part.memory).map_err(|error| format!("is unsound ({error})"))?;
        same(&found, expected).map_err(|what| format!("differs ({what})"))?;
        Ok(Self { is_kept: true, ..part })
    }

    fn new(role: Role, spec: &Spec, to_write: OwnedFd) -> std::io::Result<Self> {
        let to_read = read_only(to_write.as_fd())?;
        let memory = match role {
            Role::Table => SharedMemory::attach_read_only(to_read.try_clone()?)?,
            Role::State | Role::Pending => SharedMemory::attach_writable(to_write.try_clone()?)?,
        };
        let (to_read, to_write) = (Arc::new(to_read), Arc::new(to_write));
        let (spec, memory, is_kept) = (spec.clone(), Arc::new(memory), false);
        Ok(Self { role, spec, memory, to_read, to_write, is_kept })
    }
}

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

/// Whether two parts are of the same form, or what differs.
fn same(one: &Spec, other: &Spec) -> Result<(), String> {
    if one.kind != other.kind {
        return Err(format!("its kind is {:?}, asked for is {:?}", one.kind, other.kind));
    }
    let fields = |spec: &Spec| {
        let types = (spec.type_hash, spec.groups);
        [spec.key, spec.value, spec.align, spec.capacity, spec.lanes, types.0 as usize, types.1]
    };
    let names = ["key size", "value size", "alignment", "capacity", "lanes", "types", "groups"];
    let mut both = names.iter().zip(fields(one).into_iter().zip(fields(other)));
    match both.find(|(_, (one, other))| one != other) {
        Some((name, (one, other))) => Err(format!("its {name} is {one}, asked for is {other}")),
        None => Ok(()),
    }
}

fn refuse(table: &str, what: &str) -> Error {
    let path = format!("tables.{table}");
    Error::Value { path, what: what.to_owned(), meant: None }
}

#[cfg(test)]
mod tests;
