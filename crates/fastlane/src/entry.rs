//! Command line of an application, signals and logging.

use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory, FromArgMatches, Parser};
use fastlane_core::App;
use tracing::Level;

use crate::config::plan::{Plan, Source};
use crate::info::create_applications;
use crate::mirror::MirrorService;
use crate::tables::Tables;
use crate::{Error, LaneInfo, Program, config};

/// Command-line arguments.
#[derive(Debug, Parser)]
#[command(
    about = "A Fastlane application: its packets move as the configuration says.",
    after_help = "Exit status:\n  \
        0  ended as asked (by SIGINT, SIGTERM or itself)\n  \
        2  the command line is wrong\n  \
        3  the configuration is wrong\n  \
        4  a port, a lane or a service cannot be opened here\n  \
        5  the run went wrong: an interface was removed and is not back, or frames are missing\n  \
        SIGABRT (134 in a shell): a thread panicked; see its message\n\n\
        SIGINT or SIGTERM: the lanes send what they hold, and a summary is printed; a second one \
        ends at once."
)]
struct Arguments {
    /// Configuration file (JSON)
    #[arg(required_unless_present = "schema")]
    config: Option<PathBuf>,

    /// Check the configuration on this machine and print a report; change nothing
    #[arg(long)]
    check: bool,

    /// Print the JSON schema of the configuration
    #[arg(long)]
    schema: bool,

    /// Override a value, e.g. ports.wire.driver=af-packet or lanes.cpus=[0,1]
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,

    /// Log more (-v: debug, -vv: trace)
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Runs a network application: reads command line and configuration, opens the ports, creates an
/// instance of the application for each lane, and processes packets until it is stopped. Returns
/// the exit code for `main`.
///
/// `factory` is called once per lane in the calling thread, before any port is open. Tables that it
/// requests are created then.
///
/// # Examples
/// ```no_run
/// use fastlane::{Packet, Verdict};
///
/// fn main() -> std::process::ExitCode {
///     fastlane::main(|lane| {
///         let out = lane.require_port("out")?;
///         Ok(move |_: &mut Packet| Verdict::Forward(out))
///     })
/// }
/// ```
pub fn main<A, F>(factory: F) -> ExitCode
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    abort_on_panic();
    ExitCode::from(main_from(std::env::args_os(), &Arc::default(), factory))
}

/// Makes a panic of any thread end the process by SIGABRT, after its message. [`main`] and the C
/// `fl_main` call it first; a program with another entry calls it once at its start.
///
/// A lane that panics has lost track of its packets, and a service thread of its clients. Nothing
/// of the process runs any more then, as after SIGKILL: the kernel closes its sockets, so Linux
/// gets the frames, peers see the end, and a service manager starts the successor. It is the same
/// for each profile of the build, whether that unwinds or aborts.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Runs a network application like [`main`], with explicit arguments (the program's name first) and
/// a flag that stops the run like SIGINT once it is true. Returns the exit status.
///
/// It installs handlers for SIGINT and SIGTERM, so call it once per process. Unlike with [`main`],
/// a panic in a lane becomes a panic of this call, if the program is built to unwind.
///
/// # Examples
/// A whole run on a memory port, as a test without privilege. Eight frames circulate until the
/// application ends:
/// ```
/// use fastlane::{App, Packet, Turn, Verdict};
///
/// struct EndAfterFirstBurst;
///
/// impl App for EndAfterFirstBurst {
///     fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
///         packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Reflect));
///         turn.end();
///     }
/// }
///
/// # fn main() -> std::io::Result<()> {
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("test.json");
/// let session = directory.path().join("test.sock");
/// std::fs::write(&path, format!(r#"{{
///     "ports": {{ "wire": {{ "driver": {{
///         "memory": {{ "fill": {{ "frames": 8, "length": 60 }} }} }} }} }},
///     "session": {session:?}
/// }}"#))?;
/// let arguments = ["test".into(), path.into_os_string()];
/// let status = fastlane::main_from(arguments, &Default::default(), |_| Ok(EndAfterFirstBurst));
/// assert_eq!(status, 0);
/// # Ok(())
/// # }
/// ```
pub fn main_from<A, F>(
    arguments: impl IntoIterator<Item = OsString>,
    stop: &Arc<AtomicBool>,
    factory: F,
) -> u8
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    Program::default().main_from(arguments, stop, factory)
}

impl Program {
    /// Runs the application like [`main_from`]. Returns the exit status.
    pub fn main_from<A, F>(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        stop: &Arc<AtomicBool>,
        factory: F,
    ) -> u8
    where
        A: App + Send,
        F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
    {
        let mut words: Vec<OsString> = arguments.into_iter().collect();
        let name = program_name(words.first().map(Path::new));
        if words.is_empty() {
            words.push(name.clone().into());
        }
        let command = Arguments::command().display_name(&name).bin_name(&name);
        let matches = command.try_get_matches_from(words);
        let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
            Ok(arguments) => arguments,
            Err(error) => {
                let _ = error.print(); // as in `say`
                if error.use_stderr() {
                    crate::handover::give_up_stored();
                }
                return error.exit_code().try_into().unwrap_or(2);
            }
        };
        match start(self, &arguments, &name, stop, factory) {
            Ok(()) => 0,
            Err(error) => {
                crate::handover::give_up_stored();
                say(std::io::stderr(), format_args!("{name}: {error}\n"));
                error.exit_status()
            }
        }
    }
}

fn start<A, F>(
    program: &Program,
    arguments: &Arguments,
    name: &str,
    stop: &Arc<AtomicBool>,
    factory: F,
) -> Result<(), Error>
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    if arguments.schema {
        say(std::io::stdout(), format_args!("{}", program.schema()));
        return Ok(());
    }
    crate::log(arguments.verbose);
    let plan = config::load(Source {
        path: arguments.config.clone().unwrap_or_default(),
        overrides: arguments.overrides.clone(),
        program: name.to_owned(),
        app_defaults: program.app_defaults.clone(),
        offloads_flows: program.offloads_flows,
    })?;
    if arguments.check {
        let tables = Tables::new(plan.tables.clone(), vec![]);
        let mirror = MirrorService::open(&plan)?;
        drop(create_applications(&plan, &tables, mirror.as_ref(), factory)?);
        let report = crate::check::examine(&plan)?;
        say(std::io::stdout(), format_args!("{report}\n"));
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::Run(format!("cannot handle signals: {error}"));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Registered in this order, the first signal stops the lanes and the second ends the
        // process.
        signal_hook::flag::register_conditional_shutdown(signal, 5, Arc::clone(stop))
            .map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(stop)).map_err(failed)?;
    }
    run_and_report(&plan, factory, stop)
}

fn run_and_report<A, F>(plan: &Plan, factory: F, stop: &AtomicBool) -> Result<(), Error>
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    let summary = crate::run::run(plan, factory, stop)?;
    say(std::io::stderr(), format_args!("{summary}\n"));
    Ok(())
}

/// Prints a text. Unlike with `println`, which panics, a closed pipe does not fail the run.
fn say(mut to: impl Write, text: std::fmt::Arguments<'_>) {
    let _ = to.write_fmt(text);
}

fn program_name(path: Option<&Path>) -> String {
    let name = path.and_then(|path| path.file_name()?.to_str().map(str::to_owned));
    name.unwrap_or_else(|| "fastlane-app".to_owned())
}

/// Sends the log messages (`tracing`) of this process to standard error: level info for 0, debug
/// for 1, trace for more. [`main`](crate::main) calls it with the number of `-v`; other programs,
/// such as slow paths, call it once at their start.
///
/// Lines contain level and message without time, coloured on a terminal. If the program has set its
/// own subscriber before, nothing changes.
pub fn log(verbose: u8) {
    let level = match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .without_time()
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .finish();
    // Fails only if the program has set its own subscriber, which then takes precedence.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

#[cfg(test)]
mod tests {
    use fastlane_core::{Packet, Verdict};

    use super::*;
    use crate::Shape;

    #[test]
    fn a_check_creates_the_applications_of_the_workers_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("workers.json");
        let session = directory.path().join("workers.sock");
        let text = format!(
            r#"{{
                "lanes": {{"cpus": [0, 1], "model": {{"master-worker": {{"io": [1]}}}}}},
                "ports": {{"wire": {{"driver": {{"memory": {{}}}}}}}},
                "tables": {{"users": {{"capacity": 16}}}},
                "session": {session:?}
            }}"#
        );
        std::fs::write(&path, text).unwrap();
        let mut lanes = vec![];
        let factory = |lane: &LaneInfo<'_>| {
            lane.state::<1>("users", Shape::PerLane)?; // has a copy for each worker
            lanes.push(lane.lane());
            Ok(|_: &mut Packet| Verdict::Drop)
        };
        let arguments = ["workers".into(), "--check".into(), path.into_os_string()];
        assert_eq!(main_from(arguments, &Arc::default(), factory), 0);
        assert_eq!(lanes, [0]);
    }
}
