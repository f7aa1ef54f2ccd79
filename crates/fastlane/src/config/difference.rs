//! Comparison of configurations: the keys in which two of them differ, steering rules aside.

use std::collections::BTreeSet;

use serde_json::Value;

use super::plan::Plan;

/// Returns the keys in which two plans differ, except for their steering rules. Keys are joined by
/// dots.
pub(crate) fn differences(one: &Plan, other: &Plan) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    compare("", &without_rules(one), &without_rules(other), &mut keys);
    keys
}

/// Returns the configuration of a plan without its steering rules: the part that cannot change
/// while the application runs.
pub(crate) fn without_rules(plan: &Plan) -> Value {
    let mut raw = plan.raw.clone();
    raw.schema = None;
    raw.ports.values_mut().for_each(|port| port.steer.clear());
    serde_json::to_value(raw).unwrap_or_default()
}

/// Adds to `keys` the paths below `path` at which `one` and `other` differ.
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
