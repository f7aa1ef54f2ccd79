//! `fastlane agent`: opens ports for applications without privilege.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::Error;

/// Opens ports for applications that have no privilege.
///
/// Applications connect to its socket by themselves. The configuration says which users may use
/// which interfaces, queues and steering rules. It runs until SIGINT or SIGTERM; the traffic of its
/// clients goes on, and the next agent takes them over.
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
        print!("{}", fastlane_agent::schema());
        return Ok(ExitCode::SUCCESS);
    };
    fastlane::log(arguments.verbose);
    let done = match arguments.check {
        true => fastlane_agent::check(config),
        false => fastlane_agent::run(config),
    };
    done.map_err(|error| Error::Failed(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
