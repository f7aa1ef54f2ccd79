//! The configuration: read strictly, checked, turned into a plan.

mod locate;
mod overrides;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod rules;
pub(crate) mod threads;
mod unique;
pub mod written;

use std::path::Path;

pub use read::Mistake;

use crate::Error;
use plan::{Plan, Source};

/// Reads `path` with `overrides` into a plan for `program`.
pub(crate) fn load(path: &Path, overrides: &[String], program: &str) -> Result<Plan, Error> {
    let (overrides, program) = (overrides.to_vec(), program.to_owned());
    let source = Source { path: path.to_owned(), overrides, program };
    parse(&path.display().to_string(), &read::text(path)?, source)
}

/// As [`load`], of a text that is called `place`; the plan says that it comes from `source`.
pub(crate) fn parse(place: &str, text: &str, source: Source) -> Result<Plan, Error> {
    let written = read::read(place, text, &source.overrides)?;
    let plan = Plan::new(written, &source.program).map_err(|error| match error {
        Error::Value { path, what, meant } => {
            // With overrides the value need not be the one in the file.
            let known = source.overrides.is_empty();
            let line_and_column = known.then(|| locate::locate(text, &path)).flatten();
            let place = place.to_owned();
            Error::Configuration(Mistake { place, line_and_column, path, what, meant })
        }
        other => other,
    })?;
    Ok(Plan { source, ..plan })
}

/// The JSON schema of a configuration, as it is committed in `fastlane.schema.json`.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(written::Configuration);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
