//! The configuration: read strictly, checked, turned into a plan.

mod locate;
mod overrides;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod rules;
mod unique;
pub mod written;

use std::path::Path;

pub use read::Mistake;

use crate::Error;
use plan::Plan;

/// Reads `path` with `overrides` into a plan for `program`.
pub(crate) fn load(path: &Path, overrides: &[String], program: &str) -> Result<Plan, Error> {
    let text = read::text(path)?;
    let place = path.display().to_string();
    let written = read::read(&place, &text, overrides)?;
    Plan::new(written, program).map_err(|error| match error {
        Error::Value { path, what, meant } => {
            // With overrides the value need not be the one in the file.
            let known = overrides.is_empty();
            let line_and_column = known.then(|| locate::locate(&text, &path)).flatten();
            Error::Configuration(Mistake { place, line_and_column, path, what, meant })
        }
        other => other,
    })
}

/// The JSON schema of a configuration, as it is committed in `fastlane.schema.json`.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(written::Configuration);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
