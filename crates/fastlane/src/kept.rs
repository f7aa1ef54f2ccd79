//! What outlives an application: kept by a [`Keeper`](crate::slow::Keeper) or by the service
//! manager that runs the application, used by the application's successor.
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
use crate::manager::Manager;
use crate::messages::{KeptRings, Rings};
use crate::open::{Inherited, Keeping, Opened, PortsKept, open};
use crate::session::{Answer, Keep, Kind, TableFacts, connect_to_keeper, converse};
use crate::steering::{compare, essence};
use crate::tables::{KeptPart, Tables};

mod store;

use store::Stored;

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
    /// Where the descriptors of the messages begin; the last ones.
    messages: Option<usize>,
    /// How many descriptors there are.
    pub(crate) descriptors: usize,
}

/// What there is to be kept of this application.
#[derive(Debug)]
pub(crate) struct Keepsakes {
    pub(crate) description: Description,
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
    /// Whether tables and messages are those of the application before.
    pub(crate) is_kept: bool,
}

impl Keepsakes {
    /// Of an application that runs as planned, with these tables, ports and messages.
    pub(crate) fn new(
        plan: &Plan,
        tables: &Tables,
        ports: Keeping,
        messages: Option<&Rings>,
    ) -> Self {
        let is_kept = tables.are_kept() && messages.is_none_or(|rings| rings.is_kept);
        let (tables, mut descriptors) = tables.to_keep();
        let ours = Description::of(plan);
        let ports_and_place = (ports.facts, descriptors.len());
        descriptors.extend(ports.descriptors);
        let messages = messages.map(|rings| {
            let place = descriptors.len();
            descriptors.extend(rings.parts().1);
            place
        });
        let (ports, count) = (ports_and_place, descriptors.len());
        let description = Description { tables, ports, messages, descriptors: count, ..ours };
        Self { description, descriptors, is_kept }
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
            messages: None,
            descriptors: 0,
        }
    }

    /// Whether both say the same.
    fn is(&self, other: &Self) -> bool {
        let [this, other] = [self, other].map(|it| serde_json::to_value(it).unwrap_or_default());
        this == other
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
    pub(crate) messages: Option<KeptRings>,
    session: PathBuf,
    /// The keeper. It has everything too until this ends, in case we fail.
    keeper: Option<UnixStream>,
    manager: Option<Manager>,
    /// What the service manager has.
    stored: Stored,
}

impl Kept {
    /// Asks whether somebody has kept something for an application that runs as planned, which has
    /// its session's name already: the service manager, else a keeper.
    pub(crate) fn ask(plan: &Plan) -> Self {
        let manager = Manager::find();
        let mut kept = Self { manager, session: plan.session.clone(), ..Self::default() };
        let ours = Description::of(plan);
        let (stored, descriptors) = Stored::take();
        kept.stored = stored;
        if !kept.stored.is_empty() {
            let used = descriptors.and_then(|descriptors| kept.use_stored(descriptors, &ours));
            let Err(reason) = used else { return kept };
            warn(&reason);
            kept.give_up_stored();
        }
        if let Some(stream) = connect_to_keeper(&path(&plan.session), PATIENCE)
            && let Err(reason) = kept.take(stream, &ours)
        {
            warn(&reason);
        }
        kept
    }

    fn use_stored(&mut self, from: Vec<OwnedFd>, ours: &Description) -> Result<(), String> {
        let description = self.stored.description.clone().ok_or("it has no description")?;
        match description.unfit(ours) {
            Some(reason) => Err(reason),
            None => {
                self.sort(&description, from);
                Ok(())
            }
        }
    }

    fn take(&mut self, stream: UnixStream, ours: &Description) -> Result<(), String> {
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
        self.sort(&description, descriptors);
        self.keeper = Some(stream);
        Ok(())
    }

    /// Gives the descriptors to those whose they are.
    fn sort(&mut self, description: &Description, mut descriptors: Vec<OwnedFd>) {
        if let Some(place) = description.messages {
            let of_messages = descriptors.split_off(place.min(descriptors.len()));
            self.messages = Some(KeptRings(of_messages));
        }
        let (facts, place) = description.ports.clone();
        let of_ports = descriptors.split_off(place.min(descriptors.len()));
        self.ports = Inherited::new(facts, of_ports.into_iter().map(Some).collect());
        let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
        for table in &description.tables {
            for part in &table.parts {
                let descriptor = descriptors.get_mut(part.descriptor).and_then(Option::take);
                let (table, role) = (table.name.clone(), part.role);
                self.tables.extend(descriptor.map(|it| KeptPart { table, role, descriptor: it }));
            }
        }
    }

    /// Opens the ports of `plan`: taken over if they were kept, else anew.
    pub(crate) fn open(&mut self, plan: &Plan) -> Result<Opened, Error> {
        let Some(inherited) = self.ports.take() else { return open(plan, None) };
        let words = inherited.words();
        match open(plan, Some(inherited)) {
            Ok(opened) => {
                tracing::info!("the ports on {words} are taken over from the application before");
                Ok(opened)
            }
            Err(error) => {
                tracing::warn!("the ports that were kept are opened anew: {error}");
                self.give_up();
                open(plan, None)
            }
        }
    }

    /// Nobody may have a socket or a device of ours any more: two cannot be on one queue.
    fn give_up(&mut self) {
        self.give_up_stored();
        let keeper = self.keeper.take();
        let keeper = keeper.or_else(|| connect_to_keeper(&path(&self.session), PATIENCE));
        if let Some(keeper) = keeper {
            let _ = request(&keeper, Keep { from: 0, give_up: true }); // it has nothing, then
        }
    }

    fn give_up_stored(&mut self) {
        if let Some(manager) = &self.manager {
            self.stored.remove(manager);
        }
    }

    /// All is in use: from now on it is ours, and the service manager keeps what is kept now.
    pub(crate) fn replace(mut self, now: &Keepsakes) -> Option<Manager> {
        let manager = self.manager.take()?;
        self.stored.replace(&manager, now);
        Some(manager)
    }
}

fn warn(reason: &str) {
    tracing::warn!("what was kept of the application before is not used: {reason}");
}

fn request(stream: &UnixStream, keep: Keep) -> Result<(Description, Vec<OwnedFd>), String> {
    let (body, descriptors) = converse(stream, Kind::Keep, &keep)?;
    let description = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    Ok((description, descriptors))
}
