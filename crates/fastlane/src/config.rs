//! The configuration: strict JSON ([`raw`]), parsed, checked and resolved into a plan with all
//! defaults. Errors name the place, the allowed values and the nearest valid key.

mod checks;
mod defaults;
pub(crate) mod difference;
mod environment;
mod kernel_ports;
pub(crate) mod lane_roles;
mod locate;
mod overrides;
pub(crate) mod plan;
pub mod raw;
pub(crate) mod rules;
mod unique;

use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use defaults::{AppDefaults, settings};

pub use crate::diagnostic::{Diagnostic, nearest_word as nearest};
pub use rules::{Rule, address_and_length, resolve as resolve_rules};

pub use kernel_ports::KernelPort;

use crate::Error;
use plan::{Plan, Source};
use raw::Configuration;

/// Reads and resolves the configuration of `source`.
pub(crate) fn load(source: Source) -> Result<Plan, Error> {
    let path = source.path.clone();
    parse(&path.display().to_string(), &read(&path)?, source)
}

/// Parses and resolves a text. `place` is its name in error messages; the plan records `source`.
pub(crate) fn parse(place: &str, text: &str, source: Source) -> Result<Plan, Error> {
    let (raw, value) = parse_raw(place, text, &source.overrides)?;
    // Keys of the file stay as they are, at any depth; most applications add nothing.
    let raw = source.app_defaults.complete(raw, value);
    let plan = raw.and_then(|raw| Plan::new(raw, &source.program));
    let plan = plan.and_then(|plan| match plan.kernel_ports.first() {
        Some(port) if !source.offloads_flows => Err(kernel_ports::unsupported(&port.name)),
        _ => Ok(plan),
    });
    let plan = plan.map_err(|error| match error {
        Error::Value { path, what, meant } => {
            // An override may have replaced the value in the file, so no line is given then.
            let known = source.overrides.is_empty();
            let line_and_column = known.then(|| locate::locate(text, &path)).flatten();
            let place = place.to_owned();
            Error::Configuration(Diagnostic { place, line_and_column, path, what, meant })
        }
        other => other,
    })?;
    Ok(Plan { source, ..plan })
}

/// Reads and parses the JSON file at `path`, which is another one than the configuration of an
/// application. Errors name the place and the nearest valid key.
///
/// # Errors
/// [`Error::Unreadable`] and [`Error::Configuration`].
pub fn read_as<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    parse_text(&path.display().to_string(), &read(path)?)
}

/// Reads the settings of a driver, an object with one key.
///
/// # Errors
/// The first mistake, with its remedy.
pub fn driver(value: Value) -> Result<raw::Driver, Error> {
    parse_value("driver", value)
}

/// Returns the JSON schema of a file that is read as a `T`.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> String {
    text_of(schemars::schema_for!(T))
}

/// Reads the text of the configuration at `path`.
fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::Unreadable {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// Parses `text`, named `place` in errors, and applies overrides such as
/// `ports.wire.driver.af-xdp.interface=eth1`. Returns the raw configuration, and the same JSON
/// without any default.
fn parse_raw(
    place: &str,
    text: &str,
    overrides: &[String],
) -> Result<(Configuration, Value), Error> {
    if text.trim().is_empty() {
        let what = "the file is empty; it needs at least `ports`".to_owned();
        let (place, path) = (place.to_owned(), String::new());
        let mistake = Diagnostic { place, line_and_column: None, path, what, meant: None };
        return Err(Error::Configuration(mistake));
    }
    let configuration = parse_text(place, text)?;
    let mut value: Value = serde_json::from_str(text)
        .map_err(|error| Error::Configuration(mistake(place, &error, String::new())))?;
    if overrides.is_empty() {
        return Ok((configuration, value));
    }
    for change in overrides {
        overrides::apply(&mut value, change)?;
    }
    Ok((parse_value("--set", value.clone())?, value))
}

fn parse_text<T: DeserializeOwned>(place: &str, text: &str) -> Result<T, Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        mistake(place, error.inner(), path)
    });
    let value = parsed.map_err(Error::Configuration)?;
    deserializer
        .end()
        .map_err(|error| Error::Configuration(mistake(place, &error, String::new())))?;
    Ok(value)
}

/// Parses a JSON value; `place` names it in errors.
pub(crate) fn parse_value<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        Error::Configuration(mistake(place, error.inner(), path))
    })
}

fn mistake(place: &str, error: &serde_json::Error, path: String) -> Diagnostic {
    let message = error.to_string();
    let what = match message.rfind(" at line ") {
        Some(end) if error.line() > 0 => message[..end].to_owned(),
        _ => message,
    };
    let line_and_column = (error.line() > 0).then(|| (error.line(), error.column()));
    let path = if path == "." { String::new() } else { path };
    let path = path.trim_end_matches(".?").to_owned();
    let meant = meant_word(&what);
    // serde_json reports a second driver only as an object that does not end.
    let second = path.ends_with(".driver") && what == "expected value";
    let what = if second { "a port has one driver; this is a second one".to_owned() } else { what };
    Diagnostic { place: place.to_owned(), line_and_column, path, what, meant }
}

/// Returns the allowed word of a serde message that is nearest to the refused one. Words are in
/// backticks, the refused one first.
fn meant_word(what: &str) -> Option<String> {
    let refused =
        ["unknown field `", "unknown variant `"].iter().any(|kind| what.starts_with(kind));
    let mut words = what.split('`').skip(1).step_by(2);
    let given = words.next().filter(|_| refused)?;
    nearest(given, words)
}

/// Returns the JSON schema of a configuration, as committed in `fastlane.schema.json`.
#[must_use]
pub fn schema() -> String {
    text_of(schemars::schema_for!(Configuration))
}

/// Returns the JSON schema of a configuration whose object `app` is an `S`.
pub(crate) fn schema_with<S: JsonSchema>() -> String {
    let mut generator = schemars::SchemaGenerator::default();
    let app = generator.subschema_for::<S>();
    let mut schema = generator.into_root_schema_for::<Configuration>();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("app".to_owned(), app.to_value());
    }
    text_of(schema)
}

fn text_of(schema: schemars::Schema) -> String {
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(text: &str) -> String {
        parse_text::<Configuration>("x.json", text).unwrap_err().to_string()
    }

    #[test]
    fn a_misspelt_key_is_shown_where_it_is_with_the_one_meant() {
        let text =
            "{\n \"ports\": { \"wire\": { \"driver\": { \"tap\": { \"nmae\": \"x\" } } } }\n}";
        let message = mistake(text);
        assert!(message.starts_with("x.json:2:"), "{message}");
        assert!(message.contains("ports.wire.driver.tap.nmae: unknown field `nmae`"), "{message}");
        assert!(message.ends_with("did you mean `name`?"), "{message}");
    }

    #[test]
    fn a_port_that_comes_twice_is_refused() {
        let message =
            mistake(r#"{ "ports": { "a": {"driver":{"tap":{}}}, "a": {"driver":{"tap":{}}} } }"#);
        assert!(message.contains("duplicate key `a`"), "{message}");
    }

    #[test]
    fn nothing_may_follow() {
        assert!(mistake(r#"{ "ports": {} } {}"#).contains("trailing characters"));
    }

    #[test]
    fn a_far_word_is_not_suggested() {
        assert_eq!(meant_word("unknown field `zzz`, expected `name` or `mtu`"), None);
        assert_eq!(meant_word("invalid type: string `name`, expected `nam`"), None);
    }
}
