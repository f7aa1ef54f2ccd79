//! Defaults that a program derives from the settings of its application (the object `app`).

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::parse_value;
use super::raw::Configuration;
use crate::Error;
use crate::diagnostic::Diagnostic;

type Complete = dyn Fn(&Configuration) -> Result<Value, Error> + Send + Sync;

/// Function that checks `app` and returns default values for the rest of the configuration, and
/// the keys that the application itself changes while it runs.
#[derive(Clone, Default)]
pub(crate) struct AppDefaults {
    complete: Option<Arc<Complete>>,
    /// Paths of keys; `*` stands for any key.
    changing: &'static [&'static str],
}

impl fmt::Debug for AppDefaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.complete.is_some() { "Completion" } else { "None" })
    }
}

impl AppDefaults {
    /// Creates it from a function of settings of type `S`.
    pub(crate) fn new<S: DeserializeOwned>(
        defaults: impl Fn(&S, &Configuration) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Self {
        let complete: Arc<Complete> = Arc::new(move |raw: &Configuration| {
            defaults(&settings(raw.app.as_ref()).map_err(in_the_whole)?, raw)
        });
        Self { complete: Some(complete), changing: &[] }
    }

    /// Adds the keys that the application itself changes while it runs.
    pub(crate) fn changing(self, changing: &'static [&'static str]) -> Self {
        Self { changing, ..self }
    }

    /// Removes the keys that the application itself changes from a configuration, and objects that
    /// are empty then.
    pub(crate) fn without_changing(&self, mut configuration: Value) -> Value {
        for path in self.changing {
            let keys: Vec<&str> = path.split('.').collect();
            remove(&mut configuration, &keys);
        }
        configuration
    }

    /// Merges the derived defaults into `raw`. `value` is the same configuration as JSON.
    pub(super) fn complete(
        &self,
        raw: Configuration,
        mut value: Value,
    ) -> Result<Configuration, Error> {
        let Some(complete) = &self.complete else { return Ok(raw) };
        lay_under(&mut value, complete(&raw)?);
        parse_value("the defaults of the application", value)
    }
}

/// Removes the value at a path, of which `*` stands for any key, and objects that are empty then.
fn remove(value: &mut Value, path: &[&str]) {
    let (Value::Object(map), Some((first, rest))) = (value, path.split_first()) else { return };
    let is_meant = |key: &String| *first == "*" || key == first;
    let keys: Vec<String> = map.keys().filter(|key| is_meant(key)).cloned().collect();
    for key in keys {
        if let Some(below) = map.get_mut(&key).filter(|_| !rest.is_empty()) {
            remove(below, rest);
            if below.as_object().is_none_or(|below| !below.is_empty()) {
                continue;
            }
        }
        map.remove(&key);
    }
}

/// Parses the object `app`; an absent one is read as `{}`.
pub(crate) fn settings<S: DeserializeOwned>(app: Option<&Value>) -> Result<S, Error> {
    parse_value("app", app.cloned().unwrap_or_else(|| Value::Object(Map::new())))
}

/// Converts an error in `app` to its path in the whole configuration.
fn in_the_whole(error: Error) -> Error {
    let Error::Configuration(Diagnostic { path, what, meant, .. }) = error else { return error };
    let path = if path.is_empty() { "app".to_owned() } else { format!("app.{path}") };
    Error::Value { path, what, meant }
}

/// Adds missing keys of `defaults` at any depth. Keys of the file take precedence.
fn lay_under(raw: &mut Value, defaults: Value) {
    let (Value::Object(raw), Value::Object(defaults)) = (raw, defaults) else { return };
    for (key, default) in defaults {
        match raw.get_mut(&key) {
            Some(value) => lay_under(value, default),
            None => drop(raw.insert(key, default)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::config::{parse, plan::Source};

    #[test]
    fn keys_that_the_application_changes_are_left_out() {
        let defaults = AppDefaults::default().changing(&["app.pools", "app.*.names", "app.n4.x"]);
        let one = json!({ "app": { "n3": { "names": [1], "port": 1 }, "n4": { "x": 1 } } });
        let other = json!({ "app": { "n3": { "port": 1 }, "pools": [] } });
        let [one, other] = [one, other].map(|it| defaults.without_changing(it));
        assert_eq!(one, json!({ "app": { "n3": { "port": 1 } } }));
        assert_eq!(one, other);
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        users: usize,
    }

    fn source() -> Source {
        let app_defaults = AppDefaults::new(|settings: &Settings, raw| {
            if raw.tables.contains_key("users") {
                let (path, meant) = ("tables.users".to_owned(), None);
                return Err(Error::Value { path, what: "it follows".to_owned(), meant });
            }
            Ok(json!({
                "tables": { "users": { "capacity": settings.users } },
                "lanes": { "hold": { "packets": 7, "per-key": 2 } },
            }))
        });
        Source { app_defaults, program: "x".to_owned(), ..Source::default() }
    }

    fn said(text: &str) -> String {
        parse("x.json", text, source()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_wins_and_the_rest_follows_from_the_settings() {
        let text = r#"{ "ports": { "a": { "driver": { "memory": {} } } }, "app": { "users": 5 },
                        "lanes": { "hold": { "packets": 9 } } }"#;
        let plan = parse("x.json", text, source()).unwrap();
        assert_eq!(plan.tables["users"], 5);
        assert_eq!((plan.hold.packets, plan.hold.per_key), (9, 2));
        let changed = vec!["app.users=6".to_owned()];
        let plan = parse("x.json", text, Source { overrides: changed, ..source() }).unwrap();
        assert_eq!(plan.tables["users"], 6);
    }

    #[test]
    fn mistakes_in_the_settings_are_shown_where_they_are() {
        let ports = r#""ports": { "a": { "driver": { "memory": {} } } }"#;
        let message = said(&format!("{{ {ports},\n \"app\": {{ \"usrs\": 5 }} }}"));
        assert!(message.starts_with("x.json:2:"), "{message}");
        assert!(message.contains("app.usrs: unknown field `usrs`"), "{message}");
        assert!(message.ends_with("did you mean `users`?"), "{message}");
        let message = said(&format!("{{ {ports} }}"));
        assert!(message.contains("app: missing field `users`"), "{message}");
        let message = said(&format!(
            "{{ {ports}, \"app\": {{ \"users\": 5 }},\n\
             \"tables\": {{ \"users\": {{ \"capacity\": 1 }} }} }}"
        ));
        assert!(message.starts_with("x.json:2:"), "{message}");
        assert!(message.ends_with("tables.users: it follows"), "{message}");
    }
}
