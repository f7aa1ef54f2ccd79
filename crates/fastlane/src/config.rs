//! The configuration: read strictly, checked, turned into a plan.

pub(crate) mod overrides;
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
    Plan::new(read::read(path, overrides)?, program)
}

/// The JSON schema of a configuration, as it is committed in `fastlane.schema.json`.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(written::Configuration);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
