//! `fastlane check`: what a configuration means.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::Error;

/// Says what a configuration means on this machine, or what is wrong with it.
///
/// Nothing is opened or changed. The settings of the application itself (`app`) are known to the
/// application only: `APP CONFIG --check` checks them too.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration, strict JSON
    #[arg(value_name = "CONFIG")]
    configuration: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let report = fastlane::check(&arguments.configuration)
        .map_err(|error| Error::Failed(error.to_string()))?;
    writeln!(std::io::stdout().lock(), "{report}")?;
    Ok(ExitCode::SUCCESS)
}
