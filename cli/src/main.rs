//! The `fastlane` command: checks machines and configurations, and observes and controls running
//! applications.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod agent;
mod bench;
mod capture;
mod check;
mod doctor;
mod keep;
mod new_project;
mod reload;
mod shards;
mod switch;
mod tables;
mod top;

/// Checks, observes and controls Fastlane applications.
#[derive(Parser)]
#[command(name = "fastlane", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  done (for `top` and `capture` also: the application has ended)
  1  it did not work, the configuration is wrong, or `doctor` found a problem
  2  the command line is wrong";

#[derive(Subcommand)]
enum Command {
    Agent(agent::Arguments),
    Bench(bench::Arguments),
    Capture(capture::Arguments),
    Check(check::Arguments),
    Doctor(doctor::Arguments),
    Keep(keep::Arguments),
    New(new_project::Arguments),
    Reload(reload::Arguments),
    Shards(shards::Arguments),
    Switch(switch::Arguments),
    Tables(tables::Arguments),
    Top(top::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Agent(arguments) => agent::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Keep(arguments) => keep::run(&arguments),
        Command::New(arguments) => new_project::run(&arguments),
        Command::Reload(arguments) => reload::run(&arguments),
        Command::Shards(arguments) => shards::run(&arguments),
        Command::Switch(arguments) => switch::run(&arguments),
        Command::Tables(arguments) => tables::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
    };
    match result {
        Ok(code) => code,
        // The reader of the output has closed the pipe, which is not an error.
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fastlane: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Error of a command.
enum Error {
    /// The output could not be written.
    Output(io::Error),
    /// Any other error, as a message.
    Failed(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Output(error) => write!(formatter, "the output cannot be written: {error}"),
            Self::Failed(reason) => formatter.write_str(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
