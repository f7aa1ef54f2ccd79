//! What outlives an application: kept by a [`Keeper`](crate::slow::Keeper), used by the
//! application's successor.
//!
//! A successor uses what was kept only if it is the same program of the same release with the same
//! configuration, but for steering rules. Else it begins anew, says why, and lets the keeper give
//! up what it has.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::config::plan::Plan;
use crate::open::{Inherited, Keeping, Opened, PortsKept, open};
use crate::session::{Answer, Keep, Kind, TableFacts, connect_to_keeper, converse};
use crate::steering::{compare, essence};
use crate::tables::{KeptPart, Tables};

/// How long a keeper may be silent before it is given up.
const PATIENCE: Duration = Duration::from_secs(3);

/// The path at which a keeper waits for the successor of the application with this session.
pub(crate) fn path(session: &Path) -> PathBuf {
    session.with_extension("kept")
}

/// What was kept, and of whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Description {
    /// The release of Fastlane.
    release: String,
    /// The program.
    program: String,
    /// Its configuration, but for steering rules.
    configuration: Value,
    /// The tables; their descriptors are to write.
    tables: Vec<TableFacts>,
    /// The ports, and where their descriptors begin.
    ports: (PortsKept, usize),
    /// How many descriptors there are.
    pub(crate) descriptors: usize,
}

/// What there is to be kept of this application.
#[derive(Debug)]
pub(crate) struct Keepsakes {
    pub(crate) description: Description,
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

impl Keepsakes {
    /// Of an application that runs as planned, with these tables and ports.
    pub(crate) fn new(plan: &Plan, tables: &Tables, ports: Keeping) -> Self {
        let (tables, mut descriptors) = tables.to_keep();
        let ours = Description::of(plan);
        let ports_and_place = (ports.facts, descriptors.len());
        descriptors.extend(ports.descriptors);
        let count = descriptors.len();
        let description =
            Description { tables, ports: ports_and_place, descriptors: count, ..ours };
        Self { description, descriptors }
    }

    /// The answer to a keeper, or of a keeper: the description, and descriptors from one on.
    pub(crate) fn answer(&self, from: usize) -> Result<Answer, String> {
        let body = serde_json::to_vec(&self.description).map_err(|error| error.to_string())?;
        let descriptors = self.descriptors.iter().skip(from).take(SHARE).cloned().collect();
        Ok(Answer { kind: Kind::Keep, body, descriptors })
    }
}

/// Descriptors in one answer.
const SHARE: usize = 200;

impl Description {
    fn of(plan: &Plan) -> Self {
        Self {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            program: plan.source.program.clone(),
            configuration: essence(plan),
            tables: vec![],
            ports: Default::default(),
            descriptors: 0,
        }
    }

    /// Why an application with the description `ours` cannot use this.
    fn unfit(&self, ours: &Self) -> Option<String> {
        let differs = |what: &str, theirs: &str, ours: &str| {
            (theirs != ours).then(|| format!("it is of {what} {theirs}, this is {ours}"))
        };
        let program = differs("the program", &self.program, &ours.program);
        program.or_else(|| differs("release", &self.release, &ours.release)).or_else(|| {
            let mut keys = BTreeSet::new();
            compare("", &self.configuration, &ours.configuration, &mut keys);
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let keys = keys.join(", ");
            (!keys.is_empty()).then(|| format!("the configuration has changed ({keys})"))
        })
    }
}

/// What this application has of the one before.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) tables: Vec<KeptPart>,
    pub(crate) ports: Option<Inherited>,
    /// The keeper. It has everything too until this ends, in case we fail.
    pub(crate) keeper: Option<UnixStream>,
}

impl Kept {
    /// Asks whether somebody has kept something for an application that runs as planned, which has
    /// its session's name already.
    pub(crate) fn ask(plan: &Plan) -> Self {
        let Some(stream) = connect_to_keeper(&path(&plan.session), PATIENCE) else {
            return Self::default();
        };
        Self::take(stream, &Description::of(plan)).unwrap_or_else(|reason| {
            tracing::warn!("what was kept of the application before is not used: {reason}");
            Self::default()
        })
    }

    fn take(stream: UnixStream, ours: &Description) -> Result<Self, String> {
        let (description, mut descriptors) = request(&stream, Keep { from: 0, give_up: false })?;
        if let Some(reason) = description.unfit(ours) {
            drop(descriptors);
            request(&stream, Keep { from: 0, give_up: true })?;
            return Err(reason);
        }
        while descriptors.len() < description.descriptors {
            let from = descriptors.len();
            let (_, more) = request(&stream, Keep { from, give_up: false })?;
            if more.is_empty() {
                return Err("the keeper has less than it says".to_owned());
            }
            descriptors.extend(more);
        }
        let (facts, place) = description.ports;
        let of_ports = descriptors.split_off(place.min(descriptors.len()));
        let ports = Inherited::new(facts, of_ports.into_iter().map(Some).collect());
        let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
        let mut tables = Vec::new();
        for table in &description.tables {
            for part in &table.parts {
                let descriptor = descriptors.get_mut(part.descriptor).and_then(Option::take);
                let (table, role) = (table.name.clone(), part.role);
                tables.extend(descriptor.map(|it| KeptPart { table, role, descriptor: it }));
            }
        }
        Ok(Self { tables, ports, keeper: Some(stream) })
    }

    /// Opens the ports of `plan`: taken over if they were kept, else anew.
    pub(crate) fn open(&mut self, plan: &Plan) -> Result<Opened, Error> {
        let Some(inherited) = self.ports.take() else { return open(plan, None) };
        match open(plan, Some(inherited)) {
            Ok(opened) => {
                tracing::info!("the ports on AF_XDP are taken over from the application before");
                Ok(opened)
            }
            Err(error) => {
                tracing::warn!("the ports that were kept are opened anew: {error}");
                // Nobody may have a socket of ours: two cannot be on one queue.
                if let Some(keeper) = self.keeper.take() {
                    let _ = request(&keeper, Keep { from: 0, give_up: true });
                }
                open(plan, None)
            }
        }
    }
}

fn request(stream: &UnixStream, keep: Keep) -> Result<(Description, Vec<OwnedFd>), String> {
    let (body, descriptors) = converse(stream, Kind::Keep, &keep)?;
    let description = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    Ok((description, descriptors))
}
