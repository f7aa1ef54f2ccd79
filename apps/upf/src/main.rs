//! A 5G User Plane Function: both processes, each one alone, and the client of a running one.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use fastlane::table::ProcessMemory;
use upf::api::TraceSubject;
use upf::api::client::{self, ClientError, Request};
use upf::api::top_client::{self, TopOptions};
use upf::api::view::CaptureSubject;
use upf::api::{drain_client, reload_client};
use upf::capture::CaptureOptions;
use upf::supervisor;
use upf::supervisor::supervise::{Plan, end_with_supervisor, supervise};

/// A 5G User Plane Function whose fast path runs on any packet I/O mechanism and whose slow path
/// stays on Linux.
#[derive(Debug, Parser)]
#[command(name = "upf", version, args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    both: Both,
}

const AFTER_HELP: &str = "\
upf CONFIG runs both processes and restarts them when they die; SIGINT or SIGTERM ends them.

Exit status:
  0  success
  1  no reply: no such session, or no running UPF
  2  the command line is wrong
  3  the configuration is wrong
  4  a port, an address or a service is not available here
  5  the run failed";

/// The configuration.
#[derive(Debug, Args)]
struct Configured {
    /// The configuration: a JSON file.
    config: PathBuf,

    /// Change a value for this run, e.g. ports.n3.driver=af-packet or app.sessions=1000.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,

    /// Log more (-v: actions and reasons; -vv: everything).
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Optional configuration, where a subcommand may stand instead.
#[derive(Debug, Args)]
struct Both {
    /// The configuration: a JSON file.
    #[arg(required = true)]
    config: Option<PathBuf>,

    /// Change a value for this run, e.g. ports.n3.driver=af-packet or app.sessions=1000.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,

    /// Log more (-v: actions and reasons; -vv: everything).
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Address of the API and output format.
#[derive(Debug, Args)]
struct ApiArguments {
    /// Address of the API: `app.api` of the configuration.
    #[arg(long, default_value_t = client::API)]
    api: SocketAddr,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A sample packet between a UE and a remote address.
#[derive(Debug, Args)]
struct Packet {
    /// Remote address.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<IpAddr>,

    /// Protocol: tcp, udp (default), sctp, icmp, icmpv6 or a number.
    #[arg(long, requires = "to")]
    protocol: Option<String>,

    /// Remote port.
    #[arg(long, requires = "to")]
    port: Option<u16>,

    /// UE port.
    #[arg(long, requires = "to")]
    user_port: Option<u16>,

    /// QoS flow identifier that the gNB sets.
    #[arg(long, requires = "to")]
    qfi: Option<u8>,
}

impl Packet {
    fn asked(self) -> Option<client::Packet> {
        let Self { to, protocol, port, user_port, qfi } = self;
        to.map(|to| client::Packet { to, protocol, port, user_port, qfi })
    }
}

/// Options of `upf capture`.
#[derive(Debug, Args)]
struct Capture {
    /// SUPI (imsi-001010000000001), SEID (0x10000002a), or UE address.
    who: CaptureSubject,
    /// Output file; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    write: PathBuf,
    /// Maximum number of octets per packet.
    #[arg(short, long, value_name = "OCTETS", default_value_t = 1 << 18,
        value_parser = clap::value_parser!(u32).range(1..=1 << 18))]
    snaplen: u32,
    /// End after this number of packets.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this number of seconds.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Address of the API: `app.api` of the configuration.
    #[arg(long, default_value_t = client::API)]
    api: SocketAddr,
}

/// Options of `upf top`.
#[derive(Debug, Args)]
struct Top {
    /// Interval, such as `1s`, `500ms` or `2.5s` (100ms to 1m).
    #[arg(long, default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Maximum number of sessions.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    most: u16,
    /// Print the rates of one interval and exit.
    #[arg(long)]
    once: bool,
    /// Print tables instead of a live screen; the default without a terminal.
    #[arg(long, conflicts_with = "json")]
    plain: bool,
    #[command(flatten)]
    asked: ApiArguments,
}

/// Parses an interval of `upf top`. The UPF forgets its readings soon after a minute.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = fastlane_terminal::number::interval(text)?;
    let is_short = interval <= Duration::from_secs(60);
    is_short.then_some(interval).ok_or_else(|| "at most 1m".to_owned())
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the fast path only: the lanes and the tables.
    #[command(disable_help_flag = true)]
    Fast {
        /// Configuration and other arguments of a Fastlane application: `upf fast --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run the control plane only: PFCP, reports, the API.
    Slow(Configured),
    /// Check a configuration against this machine and print its meaning; change nothing.
    Check(Configured),
    /// Print the JSON schema of the configuration.
    Schema,
    /// List the associations of a running UPF.
    Associations(ApiArguments),
    /// List the sessions of a running UPF, or show all rules of one.
    Sessions {
        /// SEID of a session, as the list shows it.
        seid: Option<String>,
        /// Maximum number of sessions.
        #[arg(long, default_value_t = 100)]
        most: usize,
        #[command(flatten)]
        asked: ApiArguments,
    },
    /// Capture the packets of a session on N3 and N6 as pcapng, live: `upf capture imsi-... | \
    /// wireshark -k -i -`. Lanes copy packets only while a capture runs, and never wait for it.
    Capture(Capture),
    /// Show the busiest sessions of a running UPF and the packets that it drops, by reason.
    Top(Top),
    /// Apply the configuration file of a running UPF while packets flow, and print each change.
    /// Keys that cannot change without a restart are named, and then nothing is changed.
    Reload {
        /// The configuration with which the UPF was started; it finds the API and is compared with
        /// the file that the UPF runs. Default: that file, of the UPF at --api.
        config: Option<PathBuf>,
        /// Only list the changes, and the reasons against them.
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        asked: ApiArguments,
    },
    /// Take a running UPF out of service: it refuses new sessions, asks SMFs to release their
    /// associations, and serves the sessions that exist.
    Drain {
        /// Wait until all associations are released, for at most this long; SMFs are told this
        /// period instead of `n4.release-s`. Exit status 1 if associations are left.
        #[arg(long, value_name = "SECONDS")]
        wait: Option<u64>,
        /// Drain when this command is asked to end by SIGTERM or SIGINT, not before: for a
        /// container whose end is that of its pod.
        #[arg(long, requires = "wait")]
        at_end: bool,
        #[command(flatten)]
        asked: ApiArguments,
    },
    /// Take a drained UPF into service again.
    Undrain(ApiArguments),
    /// Explain how packets of a subscriber, address or tunnel are forwarded; with --to, also the
    /// decision about a sample packet in both directions. It is not counted and uses nothing up.
    Trace {
        /// SUPI (imsi-001010000000001), UE address, or TEID (0x1234).
        who: TraceSubject,
        #[command(flatten)]
        packet: Packet,
        #[command(flatten)]
        asked: ApiArguments,
    },
}

fn main() -> ExitCode {
    fastlane::abort_on_panic();
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
        Command::Associations(asked) => tell(&asked, &Request::Associations),
        Command::Sessions { seid: Some(seid), asked, .. } => tell(&asked, &Request::Session(seid)),
        Command::Sessions { seid: None, most, asked } => tell(&asked, &Request::Sessions(most)),
        Command::Trace { who, packet, asked } => tell(&asked, &Request::Trace(who, packet.asked())),
        Command::Capture(it) => capture(it),
        Command::Top(it) => top(&it),
        Command::Drain { wait, at_end, asked } => {
            if at_end && let Err(error) = supervisor::wait_for_end() {
                eprintln!("upf: cannot handle signals: {error}");
                return ExitCode::from(5);
            }
            let wait = wait.map(Duration::from_secs);
            show(drain_client::drain(asked.api, wait, asked.json))
        }
        Command::Reload { config, check, asked } => reload(config.as_deref(), !check, &asked),
        Command::Undrain(asked) => show(drain_client::undrain(asked.api, asked.json)),
    }
}

fn reload(config: Option<&Path>, is_applied: bool, asked: &ApiArguments) -> ExitCode {
    let mut api = asked.api;
    let mut path = None;
    if let Some(config) = config {
        // A file that is wrong is refused here, with the messages of `upf check`.
        match supervisor::read(config, &[]) {
            Ok(loaded) => api = loaded.settings.api.unwrap_or(api),
            Err(error) => {
                eprintln!("upf: {error}");
                return ExitCode::from(error.exit_status());
            }
        }
        path = Some(std::path::absolute(config).unwrap_or_else(|_| config.to_owned()));
    }
    show(reload_client::reload(api, path.as_deref(), is_applied, asked.json))
}

fn capture(Capture { who, write, snaplen, count, seconds, api }: Capture) -> ExitCode {
    let stop = match supervisor::stop_by_signal() {
        Ok(stop) => stop,
        Err(error) => {
            eprintln!("upf: cannot handle signals: {error}");
            return ExitCode::from(5);
        }
    };
    let options = CaptureOptions {
        subject: who,
        file: (write.as_os_str() != "-").then_some(write),
        snap_length: snaplen,
        count,
        duration: seconds.map(Duration::from_secs),
    };
    match upf::capture::capture(api, &options, &stop) {
        Err(error) if !error.is_closed_output() => {
            eprintln!("upf: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn top(Top { interval, most, once, plain, asked }: &Top) -> ExitCode {
    let options = TopOptions {
        interval: *interval,
        limit: (*most).into(),
        is_once: *once,
        is_json: asked.json,
        is_plain: *plain,
    };
    match top_client::top(asked.api, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("upf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(asked: &ApiArguments, question: &Request) -> ExitCode {
    show(client::ask(asked.api, question, asked.json))
}

/// Prints a reply, or the reason why there is none.
fn show(reply: Result<String, ClientError>) -> ExitCode {
    match reply {
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

/// Writes to the standard output. A closed pipe is no failure.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Returns the command line arguments for a configuration.
fn words(config: &Path, overrides: &[String], verbose: u8) -> Vec<OsString> {
    let mut words = vec![config.as_os_str().to_owned()];
    words.extend(overrides.iter().flat_map(|change| ["--set".into(), change.into()]));
    words.extend((0..verbose).map(|_| "-v".into()));
    words
}

fn both(Both { config, overrides, verbose }: &Both) -> ExitCode {
    let Some(config) = config else { return ExitCode::from(2) };
    // Reports configuration errors once, not by both processes.
    let release_s = match supervisor::read(config, overrides) {
        Ok(loaded) => loaded.settings.n4.release_s,
        Err(error) => {
            eprintln!("upf: {error}");
            return ExitCode::from(error.exit_status());
        }
    };
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let arguments = words(config, overrides, *verbose);
    let plan = Plan { program, arguments, release: Duration::from_secs(release_s) };
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
    ProcessMemory::return_freed();
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
            supervisor::warnings(&told.settings)
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
