//! Steering rules that change while the application runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fastlane_steer::Rules;
use serde_json::Value;

use crate::config;
use crate::config::plan::Plan;
use crate::config::rules::Rule;
use crate::open::Devices;
use crate::session::Replaced;

/// The rules in force, and who follows them.
pub(crate) struct Steering {
    plan: Plan,
    devices: Arc<Mutex<Devices>>,
}

impl std::fmt::Debug for Steering {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Steering").finish_non_exhaustive()
    }
}

/// What a port shall have.
struct Change {
    /// The number of the port.
    port: usize,
    now: Vec<Rule>,
    rules: Rules,
}

impl Steering {
    /// Of an application that runs as planned.
    pub(crate) fn new(plan: &Plan, devices: Arc<Mutex<Devices>>) -> Self {
        Self { plan: plan.clone(), devices }
    }

    /// Replaces the rules of one port.
    pub(crate) fn replace(&mut self, name: &str, now: Vec<Rule>) -> Result<Replaced, String> {
        let port = self.plan.ports.iter().position(|port| port.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.plan.ports.iter().map(|port| &*port.name).collect();
            format!("there is no port `{name}`; there are {}", names.join(", "))
        })?;
        let rules =
            config::rules::meaning(&now).map_err(|what| format!("port `{name}`: {what}"))?;
        let mut changed = self.apply(vec![Change { port, now, rules }])?;
        changed.pop().ok_or_else(|| "nothing was replaced".to_owned())
    }

    /// Lets the rules of a configuration be in force: a text with its name, or the file with which
    /// the application was started.
    pub(crate) fn reload(
        &mut self,
        file: Option<(String, String)>,
    ) -> Result<Vec<Replaced>, String> {
        let source = self.plan.source.clone();
        let (place, text) = file.map_or_else(|| read(&source.path), Ok)?;
        let plan = config::parse(&place, &text, source).map_err(|error| error.to_string())?;
        let others = differences(&self.plan, &plan);
        if !others.is_empty() {
            let keys: Vec<String> = others.iter().map(|key| format!("`{key}`")).collect();
            return Err(format!(
                "{place}: {} can only change with a restart; restart the application, or put back \
                 what it was started with",
                keys.join(", ")
            ));
        }
        let ports = plan.ports.into_iter().zip(self.plan.ports.iter());
        let changes = ports.enumerate().filter_map(|(port, (new, old))| {
            let now = written(&plan.written, &new.name);
            let before = written(&self.plan.written, &old.name);
            (value(&now) != value(&before)).then_some(Change { port, now, rules: new.rules })
        });
        let changes = changes.collect();
        self.apply(changes)
    }

    /// Makes all changes, or none.
    fn apply(&mut self, changes: Vec<Change>) -> Result<Vec<Replaced>, String> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, change) in changes.iter().enumerate() {
            let Err(reason) = devices.replace_rules(change.port, &change.rules) else { continue };
            let mut said = format!("port `{}`: {reason}", self.plan.ports[change.port].name);
            for done in &changes[..place] {
                let before = &self.plan.ports[done.port];
                if let Err(reason) = devices.replace_rules(done.port, &before.rules) {
                    let name = &before.name;
                    said += &format!("; port `{name}` keeps the new rules ({reason}): reload");
                }
            }
            return Err(said);
        }
        drop(devices);
        Ok(changes.into_iter().map(|change| self.record(change)).collect())
    }

    /// Remembers what is in force.
    fn record(&mut self, Change { port, now, rules }: Change) -> Replaced {
        let plan = &mut self.plan.ports[port];
        plan.rules = rules;
        let name = plan.name.clone();
        let written = self.plan.written.ports.get_mut(&name);
        let before = written.map(|port| std::mem::replace(&mut port.steer, now.clone()));
        tracing::info!("port `{name}`: steered by {} rules now", now.len());
        Replaced { port: name, before: before.unwrap_or_default(), now }
    }
}

fn read(path: &Path) -> Result<(String, String), String> {
    let place = path.display().to_string();
    let failed = |reason: String| {
        format!("the file that it was started with cannot be read ({place}: {reason}); name one")
    };
    let facts = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    // A pipe would keep the session waiting for whoever writes.
    if !facts.is_file() {
        return Err(failed("it is no regular file".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Ok((place, text))
}

/// The rules of a port as they are written.
fn written(configuration: &config::written::Configuration, port: &str) -> Vec<Rule> {
    configuration.ports.get(port).map(|port| port.steer.clone()).unwrap_or_default()
}

fn value(rules: &[Rule]) -> Value {
    serde_json::to_value(rules).unwrap_or_default()
}

/// The keys in which two plans differ, besides their rules.
pub(crate) fn differences(one: &Plan, other: &Plan) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    compare("", &essence(one), &essence(other), &mut keys);
    keys
}

/// What of a configuration a running application cannot change.
pub(crate) fn essence(plan: &Plan) -> Value {
    let mut written = plan.written.clone();
    written.schema = None;
    written.ports.values_mut().for_each(|port| port.steer.clear());
    serde_json::to_value(written).unwrap_or_default()
}

pub(crate) fn compare(path: &str, one: &Value, other: &Value, keys: &mut BTreeSet<String>) {
    let (Value::Object(ours), Value::Object(theirs)) = (one, other) else {
        if one != other {
            keys.insert(path.to_owned());
        }
        return;
    };
    for key in ours.keys().chain(theirs.keys()) {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (ours.get(key), theirs.get(key)) {
            (Some(one), Some(other)) => compare(&below, one, other, keys),
            _ => drop(keys.insert(below)),
        }
    }
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

    fn steering() -> Steering {
        let plan = plan(configuration(128, &json!([{ "udp-port": 53 }])));
        let mut devices = Devices::default();
        devices.add_software(0, &plan.ports[0].rules);
        Steering::new(&plan, Arc::new(Mutex::new(devices)))
    }

    fn file(configuration: &Value) -> Option<(String, String)> {
        Some(("x.json".to_owned(), configuration.to_string()))
    }

    #[test]
    fn a_reload_says_what_changed_and_only_once() {
        let mut steering = steering();
        let new = configuration(128, &json!([{ "udp-port": 53 }, { "tcp-port": 80 }]));
        let changed = steering.reload(file(&new)).unwrap();
        assert_eq!((changed.len(), changed[0].port.as_str()), (1, "wire"));
        assert_eq!((changed[0].before.len(), changed[0].now.len()), (1, 2));
        assert!(steering.reload(file(&new)).unwrap().is_empty());
    }

    #[test]
    fn what_needs_a_restart_is_named_and_nothing_changes() {
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
    fn a_pipe_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let (mut steering, pipe) = (steering(), directory.path().join("pipe"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        steering.plan.source.path = pipe;
        let error = steering.reload(None).unwrap_err();
        assert!(error.contains("no regular file); name one"), "{error}");
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
