//! Replacement of steering rules while the application runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fastlane_steer::Rules;
use serde_json::Value;

use crate::config;
use crate::config::difference::differences;
use crate::config::plan::Plan;
use crate::config::rules::Rule;
use crate::open::Devices;
use crate::session::ReplacedRules;

/// Rules in force, and the devices and lanes that apply them.
pub(crate) struct RuleReloader {
    plan: Plan,
    devices: Arc<Mutex<Devices>>,
}

impl std::fmt::Debug for RuleReloader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RuleReloader").finish_non_exhaustive()
    }
}

/// New rules of a port.
struct Change {
    /// Number of the port.
    port: usize,
    /// Rules as configured.
    now: Vec<Rule>,
    /// The same rules, resolved.
    rules: Rules,
}

impl RuleReloader {
    /// Creates it for an application that runs `plan`.
    pub(crate) fn new(plan: &Plan, devices: Arc<Mutex<Devices>>) -> Self {
        Self { plan: plan.clone(), devices }
    }

    /// Replaces the rules of one port.
    ///
    /// # Errors
    /// The reason; the old rules stay in force.
    pub(crate) fn replace(&mut self, name: &str, now: Vec<Rule>) -> Result<ReplacedRules, String> {
        let port = self.plan.ports.iter().position(|port| port.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.plan.ports.iter().map(|port| &*port.name).collect();
            format!("there is no port `{name}`; there are {}", names.join(", "))
        })?;
        let rules = config::rules::resolve_of_port(&now)
            .map_err(|what| format!("port `{name}`: {what}"))?;
        let mut changed = self.apply(vec![Change { port, now, rules }])?;
        changed.pop().ok_or_else(|| "nothing was replaced".to_owned())
    }

    /// Applies the rules of a configuration: a file name with its text, or the file with which the
    /// application was started. Returns the ports whose rules have changed.
    ///
    /// # Errors
    /// The reason; all old rules stay in force, except those that the message names.
    pub(crate) fn reload(
        &mut self,
        file: Option<(String, String)>,
    ) -> Result<Vec<ReplacedRules>, String> {
        let source = self.plan.source.clone();
        let (name, text) = file.map_or_else(|| read(&source.path), Ok)?;
        let plan = config::parse(&name, &text, source).map_err(|error| error.to_string())?;
        let others = differences(&self.plan, &plan);
        if !others.is_empty() {
            let keys: Vec<String> = others.iter().map(|key| format!("`{key}`")).collect();
            return Err(format!(
                "{name}: {} can only change with a restart; restart the application or restore the \
                 previous values",
                keys.join(", ")
            ));
        }
        let ports = plan.ports.into_iter().zip(self.plan.ports.iter());
        let changes = ports.enumerate().filter_map(|(port, (new, old))| {
            let now = rules_of(&plan.raw, &new.name);
            let before = rules_of(&self.plan.raw, &old.name);
            (to_json(&now) != to_json(&before)).then_some(Change { port, now, rules: new.rules })
        });
        let changes = changes.collect();
        self.apply(changes)
    }

    /// Makes all changes, or none. If undoing one fails too, the error names the port.
    fn apply(&mut self, changes: Vec<Change>) -> Result<Vec<ReplacedRules>, String> {
        let mut after = self.plan.clone();
        for change in &changes {
            after.ports[change.port].rules.clone_from(&change.rules);
        }
        // One list steers a port and its VLANs where Linux has the interface.
        let steered: BTreeSet<usize> =
            changes.iter().map(|change| after.steered_by(change.port)).collect();
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replace = |plan: &Plan, port: usize| {
            let rules = plan.applied_rules(&plan.ports[port]).map_err(|error| error.to_string())?;
            devices.replace_rules(port, &rules)
        };
        for port in &steered {
            let Err(reason) = replace(&after, *port) else { continue };
            let mut message = format!("port `{}`: {reason}", after.ports[*port].name);
            for done in steered.range(..port) {
                if let Err(reason) = replace(&self.plan, *done) {
                    let name = &after.ports[*done].name;
                    message +=
                        &format!("; port `{name}` has the new rules ({reason}); reload again");
                }
            }
            return Err(message);
        }
        drop(devices);
        Ok(changes.into_iter().map(|change| self.record(change)).collect())
    }

    /// Stores a change that is in force.
    fn record(&mut self, Change { port, now, rules }: Change) -> ReplacedRules {
        let plan = &mut self.plan.ports[port];
        plan.rules = rules;
        let name = plan.name.clone();
        let raw = self.plan.raw.ports.get_mut(&name);
        let before = raw.map(|port| std::mem::replace(&mut port.steer, now.clone()));
        tracing::info!("port `{name}`: {} steering rules in force", now.len());
        ReplacedRules { port: name, before: before.unwrap_or_default(), now }
    }
}

fn read(path: &Path) -> Result<(String, String), String> {
    let name = path.display().to_string();
    let failed = |reason: String| {
        format!("the configuration of the start cannot be read ({name}: {reason}); name a file")
    };
    let facts = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    // Reading a pipe would block the session thread.
    if !facts.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Ok((name, text))
}

/// Returns the configured rules of a port.
fn rules_of(configuration: &config::raw::Configuration, port: &str) -> Vec<Rule> {
    configuration.ports.get(port).map(|port| port.steer.clone()).unwrap_or_default()
}

fn to_json(rules: &[Rule]) -> Value {
    serde_json::to_value(rules).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};
    use serde_json::json;

    use super::*;

    fn plan(configuration: Value) -> Plan {
        Plan::new(serde_json::from_value(configuration).unwrap(), "test").unwrap()
    }

    fn configuration(frames: usize, rules: &Value) -> Value {
        let memory = json!({ "driver": { "memory": {} }, "steer": rules });
        json!({ "ports": { "wire": memory }, "lanes": { "frames": frames } })
    }

    fn steering() -> RuleReloader {
        let plan = plan(configuration(128, &json!([{ "udp-port": 53 }])));
        let mut devices = Devices::default();
        devices.add_lane_rules(0, &plan.ports[0].rules);
        RuleReloader::new(&plan, Arc::new(Mutex::new(devices)))
    }

    fn file(configuration: &Value) -> Option<(String, String)> {
        Some(("x.json".to_owned(), configuration.to_string()))
    }

    #[test]
    fn a_reload_reports_a_change_once() {
        let mut steering = steering();
        let new = configuration(128, &json!([{ "udp-port": 53 }, { "tcp-port": 80 }]));
        let changed = steering.reload(file(&new)).unwrap();
        assert_eq!((changed.len(), changed[0].port.as_str()), (1, "wire"));
        assert_eq!((changed[0].before.len(), changed[0].now.len()), (1, 2));
        assert!(steering.reload(file(&new)).unwrap().is_empty());
    }

    #[test]
    fn keys_that_need_a_restart_are_named_and_nothing_changes() {
        let mut steering = steering();
        let mut new = configuration(256, &json!([]));
        new["tables"] = json!({ "blocked": { "capacity": 3 } });
        let error = steering.reload(file(&new)).unwrap_err();
        assert!(error.starts_with("x.json: `lanes.frames`, `tables` can only"), "{error}");
        let error = steering.reload(file(&json!({ "prts": {} }))).unwrap_err();
        assert!(error.contains("did you mean `ports`"), "{error}");
        let error = steering.reload(None).unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
        assert_eq!(steering.plan.ports[0].rules.as_slice().len(), 1);
    }

    #[test]
    fn a_pipe_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (mut steering, pipe) = (steering(), directory.path().join("pipe"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        steering.plan.source.path = pipe;
        let error = steering.reload(None).unwrap_err();
        assert!(error.contains("not a regular file); name a file"), "{error}");
    }

    #[test]
    fn rules_are_validated() {
        let mut steering = steering();
        let wrong = serde_json::from_value(json!([{ "udp-port": 1, "tcp-port": 2 }])).unwrap();
        let error = steering.replace("wire", wrong).unwrap_err();
        assert!(error.starts_with("port `wire`: rule 1"), "{error}");
        assert!(steering.replace("wure", vec![]).unwrap_err().contains("there are wire"));
    }
}
