//! `fastlane agent`: opens ports for applications without privilege.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use fastlane_agent::Configuration;

use crate::Error;

/// Opens ports for applications that have no privilege.
///
/// Applications connect to its socket by themselves. The configuration says which users, or which
/// pods of a Kubernetes node, may use which interfaces, queues and steering rules. It runs until
/// SIGINT or SIGTERM; the traffic of its clients goes on, and the next agent takes them over.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Configuration of the agent (JSON)
    #[arg(required_unless_present = "schema")]
    config: Option<PathBuf>,
    /// Check the configuration and end
    #[arg(long)]
    check: bool,
    /// Print the JSON schema of the configuration
    #[arg(long)]
    schema: bool,
    /// Log more (-v: debug, -vv: trace)
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let Some(config) = arguments.config.as_deref().filter(|_| !arguments.schema) else {
        write!(io::stdout(), "{}", fastlane_agent::schema())?;
        return Ok(ExitCode::SUCCESS);
    };
    fastlane::log(arguments.verbose);
    let configuration = fastlane_agent::read(config).map_err(failed)?;
    if !arguments.check {
        match configuration.kubernetes {
            Some(_) => run_on_kubernetes(configuration)?,
            None => fastlane_agent::run(configuration).map_err(failed)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "kubernetes")]
fn run_on_kubernetes(configuration: Configuration) -> Result<(), Error> {
    fastlane_kubernetes::run(configuration).map_err(failed)
}

#[cfg(not(feature = "kubernetes"))]
fn run_on_kubernetes(_: Configuration) -> Result<(), Error> {
    Err(failed("this program knows no Kubernetes; build it with the feature `kubernetes`"))
}

fn failed(error: impl ToString) -> Error {
    Error::Failed(error.to_string())
}
