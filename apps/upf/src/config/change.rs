//! Difference of two configurations: the values that were added, removed or replaced, by path.

use std::fmt;

use serde_json::{Map, Value};

/// Longest value in the text of a change, in characters.
const SHOWN: usize = 120;

/// Change of a value. Objects are compared key by key, anything else as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Keys from the outermost object to the value.
    pub path: Vec<String>,
    /// Value before; `None` if it is added.
    pub before: Option<Value>,
    /// Value afterwards; `None` if it is removed.
    pub after: Option<Value>,
}

impl Change {
    /// Returns the path as it is written in messages: keys joined by dots.
    #[must_use]
    pub fn place(&self) -> String {
        self.path.join(".")
    }
}

/// Writes the change as `app.sessions: 100 -> 200`, as `+ app.pools ...` or as `- app.pools ...`.
impl fmt::Display for Change {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                write!(to, "{place}: {} -> {}", shown(before), shown(after))
            }
            (None, Some(after)) => write!(to, "+ {place}: {}", shown(after)),
            (Some(before), None) => write!(to, "- {place}: {}", shown(before)),
            (None, None) => write!(to, "{place}"),
        }
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Returns the changes that make `before` to `after`, in the order of their paths.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(&mut Vec::new(), Some(before), Some(after), &mut changes);
    changes
}

fn compare(
    path: &mut Vec<String>,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<Change>,
) {
    if let (Some(Value::Object(ours)), Some(Value::Object(theirs))) = (before, after) {
        let mut keys: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            path.push(key.clone());
            compare(path, ours.get(key), theirs.get(key), changes);
            path.pop();
        }
    } else if before != after {
        let (before, after) = (before.cloned(), after.cloned());
        changes.push(Change { path: path.clone(), before, after });
    }
}

/// Returns `value` with the changes made.
#[must_use]
pub fn apply(value: &Value, changes: &[Change]) -> Value {
    let mut value = value.clone();
    for Change { path, after, .. } in changes {
        let Some((last, parents)) = path.split_last() else {
            value = after.clone().unwrap_or_default();
            continue;
        };
        let mut at = &mut value;
        for key in parents {
            at = object(at).entry(key.clone()).or_insert(Value::Null);
        }
        match after {
            Some(after) => drop(object(at).insert(last.clone(), after.clone())),
            None => drop(object(at).remove(last)),
        }
    }
    value
}

/// Returns the object that a value is, or becomes.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Generates JSON values with few keys, so that two of them have paths in common.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (0..3_u8).prop_map(|number| json!(number)),
            "[a.]{0,2}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let keys = prop_oneof![Just("a"), Just("b"), Just("a.b"), Just("")];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map(keys.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_difference_makes_one_configuration_to_the_other(one in value(), other in value()) {
            let changes = difference(&one, &other);
            prop_assert_eq!(apply(&one, &changes), other.clone());
            prop_assert_eq!(changes.is_empty(), one == other);
            // Nothing is named that does not differ.
            prop_assert!(changes.iter().all(|it| it.before != it.after));
        }
    }

    #[test]
    fn a_change_is_written_with_its_path() {
        let one = json!({ "app": { "sessions": 100, "pools": [1], "hairpin": "x" } });
        let other = json!({ "app": { "sessions": 200, "pools": [1], "teid": "smf" } });
        let text: Vec<String> = difference(&one, &other).iter().map(Change::to_string).collect();
        assert_eq!(
            text,
            ["- app.hairpin: \"x\"", "app.sessions: 100 -> 200", "+ app.teid: \"smf\""]
        );
    }
}
