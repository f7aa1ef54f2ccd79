//! `fastlane check`: checks a configuration on this machine.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::Error;

/// Checks a configuration on this machine and prints a report.
///
/// Nothing is opened or changed. Only the application knows its own settings (`app`); to check them
/// too, run `APP CONFIG --check`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Configuration file (strict JSON)
    #[arg(value_name = "CONFIG")]
    configuration: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let report = fastlane::check(&arguments.configuration)
        .map_err(|error| Error::Failed(error.to_string()))?;
    writeln!(std::io::stdout().lock(), "{report}")?;
    Ok(ExitCode::SUCCESS)
}
