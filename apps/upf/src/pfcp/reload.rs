//! Reload of the configuration while the UPF runs.
//!
//! A reload is one store: that of the [`ConfigurationRecord`]. Before it everything is checked and
//! nothing has changed; after it every process continues with the new configuration, also one that
//! is killed and started again. Then lanes exchange what they have made of the old one, the ports
//! get their steering rules, and the control plane opens its node anew on the same tables, as a
//! successor would.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane::slow::{Messages, SlowError, SlowPath, Writer};
use fastlane::table::{EntryId, RecordWriter, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::reload_check::sessions_in_the_way;
use super::sessions::Sessions;
use crate::config::Settings;
use crate::config::change::Change;
use crate::config::reloadable::examine;
use crate::config::running::{ConfigurationRecord, RunningConfig};
use crate::datapath::DROP_REASON_WORDS;
use crate::rules::layout::drop_reason::CONFIGURED;
use crate::rules::layout::message::kind;
use crate::rules::layout::table;

/// Longest wait for the lanes to exchange their maps. A lane that is not scheduled does so later.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which lanes are told again. A message may find its ring full.
const REMINDER: Duration = Duration::from_millis(20);
/// Interval at which the lanes' generations are read.
const STEP: Duration = Duration::from_micros(500);

/// The configuration file of this process, and the requests to read it again.
pub struct ConfigurationFile<'a> {
    /// Content at the start of the process.
    pub first: RunningConfig,
    /// Reads the file again.
    pub read: &'a dyn Fn() -> Result<RunningConfig, String>,
    /// Path of the file, absolute.
    pub path: PathBuf,
    /// Called with the settings in force after a change, for what is not the node's.
    pub on_change: &'a dyn Fn(&Settings),
    /// Set by SIGHUP.
    pub is_requested: &'a AtomicBool,
}

impl ConfigurationFile<'_> {
    /// Returns true if a signal has asked for a reload since the last call.
    pub(super) fn take_request(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed) && self.is_requested.swap(false, Ordering::AcqRel)
    }
}

impl std::fmt::Debug for ConfigurationFile<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("ConfigurationFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Result of a reload, or of its check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReloadReport {
    /// True if the configuration in force is that of the file.
    pub is_in_force: bool,
    /// Number of configurations since the start of the fast path.
    pub generation: u64,
    /// Differences between the configuration in force before and the file.
    pub changes: Vec<String>,
    /// Reasons why nothing was changed; empty if the reload is possible.
    pub refusals: Vec<String>,
}

/// The record of the configuration, and the lanes' replies.
#[derive(Debug)]
pub struct ConfigurationStore {
    record: Writer<RecordWriter<ConfigurationRecord>>,
    lanes: State<DROP_REASON_WORDS>,
    slow: SlowPath,
}

impl ConfigurationStore {
    /// Attaches to the record of a running user plane process.
    ///
    /// # Errors
    /// The table is missing, or another program writes it.
    pub(super) fn attach(slow: &SlowPath) -> Result<Self, SlowError> {
        let (record, lanes) =
            (slow.record_writer(table::CONFIGURATION)?, slow.state(table::CAUSES)?);
        Ok(Self { record, lanes, slow: slow.clone() })
    }

    /// Returns the stored configuration, if there is one that this release can read.
    pub(super) fn stored(&self) -> Option<RunningConfig> {
        let stored = RunningConfig::read(self.record.get()?);
        let problem = |reason: &String| {
            tracing::warn!("the stored configuration cannot be read ({reason}); using the file");
        };
        stored.inspect_err(problem).ok()
    }

    /// Stores a configuration.
    fn store(&mut self, configuration: &RunningConfig) -> Result<(), String> {
        let record = configuration.record()?;
        self.record.set(&record).map_err(|error| error.to_string())
    }

    /// Stores a configuration and makes lanes and ports work with it.
    ///
    /// # Errors
    /// The reason; the record is then the former one, unless the message says otherwise.
    pub(super) fn commit(
        &mut self,
        configuration: &mut RunningConfig,
        messages: &mut Messages,
    ) -> Result<(), String> {
        self.store(configuration)?;
        self.tell(configuration.generation, messages);
        if configuration.steering_due.is_empty() {
            return Ok(());
        }
        for port in &configuration.steering_due {
            let rules = configuration.steering(port);
            self.slow.replace_rules(port, &rules).map_err(|error| error.to_string())?;
        }
        configuration.steering_due.clear();
        self.store(configuration)
    }

    /// Tells the lanes of a generation and waits until all of them work with it.
    pub(super) fn tell(&self, generation: u64, messages: &mut Messages) {
        let expected = generation.wrapping_mul(self.lanes.lanes().max(1) as u64);
        let end = Instant::now() + PATIENCE;
        let mut reminder = Instant::now();
        while self.lanes.read(EntryId(CONFIGURED))[0] != expected && self.slow.is_alive() {
            let now = Instant::now();
            if now >= end {
                tracing::warn!("a lane has not taken over the configuration yet");
                return;
            }
            if now >= reminder {
                for lane in 0..messages.lanes() {
                    messages.send_value(lane, kind::CONFIGURATION, &generation);
                }
                reminder = now + REMINDER;
            }
            std::thread::sleep(STEP);
        }
    }
}

/// A reload in the event loop.
pub struct Reloader<'a> {
    pub(super) file: &'a ConfigurationFile<'a>,
    pub(super) running: &'a RunningConfig,
    pub(super) store: &'a mut ConfigurationStore,
    pub(super) messages: &'a mut Messages,
    /// The configuration that the loop is to continue with.
    pub(super) next: Option<RunningConfig>,
}

impl std::fmt::Debug for Reloader<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Reloader").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Returns true if both paths are of one file now. A link on the way may have been replaced since
/// the start, as in a volume of Kubernetes.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let found = |path| std::fs::canonicalize(path).ok();
    one == other || found(one).is_some_and(|file| Some(file) == found(other))
}

impl Reloader<'_> {
    /// Returns true if the event loop is to open the node anew.
    #[must_use]
    pub const fn is_reloaded(&self) -> bool {
        self.next.is_some()
    }

    /// Reloads like [`reload`](Self::reload), if `named` is the file of this process.
    pub fn reload_from(
        &mut self,
        named: Option<&Path>,
        sessions: &Sessions,
        is_applied: bool,
    ) -> ReloadReport {
        if let Some(named) = named.filter(|named| !is_same_file(named, &self.file.path)) {
            let reason = format!(
                "this UPF runs {}, not {}; write the changes there",
                self.file.path.display(),
                named.display()
            );
            return self.report(&[], vec![reason]);
        }
        self.reload(sessions, is_applied)
    }

    /// Reads the file, and applies it if `is_applied` and nothing stands in the way. The event loop
    /// then opens the node anew.
    pub fn reload(&mut self, sessions: &Sessions, is_applied: bool) -> ReloadReport {
        match (self.file.read)() {
            Ok(file) => self.reload_to(file, sessions, is_applied),
            Err(reason) => self.report(&[], vec![reason]),
        }
    }

    /// Applies a configuration like [`reload`](Self::reload).
    fn reload_to(
        &mut self,
        file: RunningConfig,
        sessions: &Sessions,
        is_applied: bool,
    ) -> ReloadReport {
        let mut after = match file.following(self.running) {
            Ok(after) => after,
            Err(reason) => return self.report(&[], vec![reason]),
        };
        let (changes, mut refusals) = examine(self.running, &after);
        refusals.extend(sessions_in_the_way(sessions, self.running, &after));
        refusals.extend(after.record().err());
        if changes.is_empty() && refusals.is_empty() {
            return ReloadReport { is_in_force: true, ..self.report(&[], Vec::new()) };
        }
        // Of ports, nothing else can change.
        let of_port = |change: &Change| match &change.path[..] {
            [first, port, ..] if first == "ports" => Some(port.clone()),
            _ => None,
        };
        after.steering_due = changes.iter().filter_map(of_port).collect();
        if !is_applied || !refusals.is_empty() {
            return self.report(&changes, refusals);
        }
        if let Err(reason) = self.store.commit(&mut after, self.messages) {
            let reason = self.undo(after, reason);
            return self.report(&changes, vec![reason]);
        }
        let generation = after.generation;
        self.next = Some(after);
        ReloadReport { is_in_force: true, generation, ..self.report(&changes, Vec::new()) }
    }

    /// Returns to the configuration before a reload that failed half-way. Returns the reason, with
    /// what is left of the reload.
    fn undo(&mut self, failed: RunningConfig, reason: String) -> String {
        let mut before = self.running.clone();
        before.generation = failed.generation + 1;
        before.settings.numbering = failed.settings.numbering;
        before.steering_due = failed.steering_due;
        let undone = self.store.commit(&mut before, self.messages);
        self.next = Some(before);
        match undone {
            Ok(()) => reason,
            Err(again) => format!("{reason}; steering rules may be those of the file ({again})"),
        }
    }

    fn report(&self, changes: &[Change], refusals: Vec<String>) -> ReloadReport {
        let changes = changes.iter().map(Change::to_string).collect();
        let generation = self.running.generation;
        ReloadReport { is_in_force: false, generation, changes, refusals }
    }
}

/// Logs a reload that nobody waits for.
pub(super) fn log(report: &ReloadReport) {
    for change in report.changes.iter().filter(|_| report.is_in_force) {
        tracing::info!("reload: {change}");
    }
    for refusal in &report.refusals {
        tracing::error!("reload: nothing was changed: {refusal}");
    }
    if report.is_in_force {
        tracing::info!("the configuration is that of the file (number {})", report.generation);
    }
}
