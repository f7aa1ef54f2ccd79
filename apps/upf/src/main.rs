//! A 5G User Plane Function: both halves, each half, and what people ask of a running one.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Parser, Subcommand};
use upf::api::Who;
use upf::api::client::{self, Ask};
use upf::supervisor::supervise::{Plan, end_with_supervisor, supervise};
use upf::supervisor::{self, check};

/// A 5G User Plane Function whose fast path runs on any mechanism and whose slow path stays on
/// Linux.
#[derive(Debug, Parser)]
#[command(name = "upf", version, args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    both: Both,
}

const AFTER_HELP: &str = "\
upf CONFIG runs both halves and starts again what dies; SIGINT or SIGTERM ends them.

Exit status:
  0  ended as asked, or answered
  1  the question has no answer: no such session, nobody to ask
  2  the command line is wrong
  3  the configuration is wrong
  4  a port, an address or a service cannot be had here
  5  the run went wrong";

/// The configuration.
#[derive(Debug, Args)]
struct Configured {
    /// The configuration: a JSON file.
    config: PathBuf,

    /// Change a value for this run, e.g. ports.n3.driver=af-packet or app.sessions=1000.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,

    /// Say more (-v: what is done and why; -vv: everything).
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// As [`Configured`], where a subcommand may stand instead.
#[derive(Debug, Args)]
struct Both {
    /// The configuration: a JSON file.
    #[arg(required = true)]
    config: Option<PathBuf>,

    /// Change a value for this run, e.g. ports.n3.driver=af-packet or app.sessions=1000.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,

    /// Say more (-v: what is done and why; -vv: everything).
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Whom to ask, and how to answer.
#[derive(Debug, Args)]
struct Asked {
    /// Where the API is: `app.api` of the configuration.
    #[arg(long, default_value_t = client::API)]
    api: SocketAddr,

    /// Answer in JSON.
    #[arg(long)]
    json: bool,
}

/// A packet between a user and somebody.
#[derive(Debug, Args)]
struct Packet {
    /// The other end's address.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<IpAddr>,

    /// tcp, udp, sctp, icmp, icmpv6 or a number; udp if it is not said.
    #[arg(long, requires = "to")]
    protocol: Option<String>,

    /// The other end's port.
    #[arg(long, requires = "to")]
    port: Option<u16>,

    /// The user's port.
    #[arg(long, requires = "to")]
    user_port: Option<u16>,

    /// The QoS flow that the base station marks it with.
    #[arg(long, requires = "to")]
    qfi: Option<u8>,
}

impl Packet {
    fn asked(self) -> Option<client::Packet> {
        let Self { to, protocol, port, user_port, qfi } = self;
        to.map(|to| client::Packet { to, protocol, port, user_port, qfi })
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the fast half only: the lanes and the tables.
    #[command(disable_help_flag = true)]
    Fast {
        /// The configuration and what else a Fastlane application takes: `upf fast --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run the slow half only: PFCP, reports, the API.
    Slow(Configured),
    /// Check a configuration against this machine, say what it means, and touch nothing.
    Check(Configured),
    /// Print the JSON schema of a configuration.
    Schema,
    /// Show the control plane functions that a running UPF is associated with.
    Associations(Asked),
    /// Show the sessions of a running UPF, or all the rules of one.
    Sessions {
        /// The SEID of one, as the list shows it.
        seid: Option<String>,
        /// The most sessions.
        #[arg(long, default_value_t = 100)]
        most: usize,
        #[command(flatten)]
        asked: Asked,
    },
    /// Say why packets of a subscriber, an address or a tunnel go where they go; with --to, what
    /// would become of a packet now, both ways. It is not counted and uses nothing up.
    Trace {
        /// A SUPI (imsi-001010000000001), an address of a user, or a TEID (0x1234).
        who: Who,
        #[command(flatten)]
        packet: Packet,
        #[command(flatten)]
        asked: Asked,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(command) = arguments.command else { return both(&arguments.both) };
    match command {
        Command::Fast { arguments } => fast(arguments),
        Command::Slow(configured) => slow(&configured),
        Command::Check(configured) => examine(&configured),
        Command::Schema => {
            say(&supervisor::program().schema());
            ExitCode::SUCCESS
        }
        Command::Associations(asked) => tell(&asked, &Ask::Associations),
        Command::Sessions { seid: Some(seid), asked, .. } => tell(&asked, &Ask::Session(seid)),
        Command::Sessions { seid: None, most, asked } => tell(&asked, &Ask::Sessions(most)),
        Command::Trace { who, packet, asked } => tell(&asked, &Ask::Trace(who, packet.asked())),
    }
}

fn tell(asked: &Asked, question: &Ask) -> ExitCode {
    match client::ask(asked.api, question, asked.json) {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("upf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes for a person. That nobody reads it is no failure.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The words of a command line that say the same.
fn words(config: &Path, overrides: &[String], verbose: u8) -> Vec<OsString> {
    let mut words = vec![config.as_os_str().to_owned()];
    words.extend(overrides.iter().flat_map(|change| ["--set".into(), change.into()]));
    words.extend((0..verbose).map(|_| "-v".into()));
    words
}

fn both(Both { config, overrides, verbose }: &Both) -> ExitCode {
    let Some(config) = config else { return ExitCode::from(2) };
    // What is wrong in it is said once.
    if let Err(error) = supervisor::read(config, overrides) {
        eprintln!("upf: {error}");
        return ExitCode::from(error.exit_status());
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let plan = Plan { program, arguments: words(config, overrides, *verbose) };
    match supervise(&plan) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("upf: cannot handle signals: {error}");
            ExitCode::from(5)
        }
    }
}

fn fast(arguments: Vec<OsString>) -> ExitCode {
    end_with_supervisor();
    let words = [OsString::from(supervisor::NAME)].into_iter().chain(arguments);
    ExitCode::from(supervisor::fast(words, &Arc::<AtomicBool>::default()))
}

fn slow(configured: &Configured) -> ExitCode {
    end_with_supervisor();
    match supervisor::slow(&configured.config, &configured.overrides, configured.verbose) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("upf: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn examine(configured: &Configured) -> ExitCode {
    let Configured { config, overrides, verbose } = configured;
    let words = words(config, overrides, *verbose).into_iter();
    let words = [OsString::from(supervisor::NAME), "--check".into()].into_iter().chain(words);
    let status = supervisor::fast(words, &Arc::default());
    if status != 0 {
        return ExitCode::from(status);
    }
    match supervisor::read(config, overrides) {
        Ok(told) => {
            check::warnings(&told.settings)
                .iter()
                .for_each(|warning| println!("warning: {warning}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("upf: {error}");
            ExitCode::from(error.exit_status())
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
