//! The configuration: strict JSON ([`raw`]), checked and resolved into a plan with all defaults.

mod checks;
mod defaults;
pub(crate) mod difference;
pub(crate) mod lane_roles;
mod locate;
mod overrides;
pub(crate) mod plan;
pub mod raw;
pub(crate) mod read;
pub(crate) mod rules;
mod unique;

use schemars::JsonSchema;
use serde_json::Value;

pub(crate) use defaults::{AppDefaults, settings};

pub use crate::diagnostic::{Diagnostic, nearest_word as nearest};

use crate::Error;
use plan::{Plan, Source};

/// Reads and resolves the configuration of `source`.
pub(crate) fn load(source: Source) -> Result<Plan, Error> {
    let path = source.path.clone();
    parse(&path.display().to_string(), &read::text(&path)?, source)
}

/// Parses and resolves a text. `place` is its name in error messages; the plan records `source`.
pub(crate) fn parse(place: &str, text: &str, source: Source) -> Result<Plan, Error> {
    let (raw, value) = read::read(place, text, &source.overrides)?;
    let raw = source.app_defaults.complete(raw, value);
    let plan = raw.and_then(|raw| Plan::new(raw, &source.program));
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

/// Returns the JSON schema of a configuration, as committed in `fastlane.schema.json`.
#[must_use]
pub fn schema() -> String {
    text_of(schemars::schema_for!(raw::Configuration))
}

/// Returns the JSON schema of a configuration whose object `app` is an `S`.
pub(crate) fn schema_with<S: JsonSchema>() -> String {
    let mut generator = schemars::SchemaGenerator::default();
    let app = generator.subschema_for::<S>();
    let mut schema = generator.into_root_schema_for::<raw::Configuration>();
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
