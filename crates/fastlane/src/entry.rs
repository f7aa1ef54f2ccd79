//! The command line that every application has.

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
use crate::mirror::MirrorService;
use crate::tables::Tables;
use crate::{Error, LaneInfo, Program, config};

/// The arguments.
#[derive(Debug, Parser)]
#[command(
    about = "A Fastlane application: its packets move as the configuration says.",
    after_help = "Exit status:\n  \
        0  ended as asked (by SIGINT, SIGTERM or itself)\n  \
        2  the command line is wrong\n  \
        3  the configuration is wrong\n  \
        4  a port, a lane or a service cannot be opened here\n  \
        5  the run went wrong\n\n\
        SIGINT or SIGTERM: the lanes send what they hold, and a summary is printed; a second one \
        ends at once."
)]
struct Arguments {
    /// The configuration: a JSON file.
    #[arg(required_unless_present = "schema")]
    config: Option<PathBuf>,

    /// Check the configuration against this machine, say what it means, and touch nothing.
    #[arg(long)]
    check: bool,

    /// Print the JSON schema of a configuration.
    #[arg(long)]
    schema: bool,

    /// Change a value for this run, e.g. ports.wire.driver=af-packet or lanes.cpus=[0,1].
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,

    /// Say more (-v: what is opened and why; -vv: everything).
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Runs a network application: reads the command line and the configuration, opens the ports, makes
/// an instance of the application for each lane by `factory`, and moves packets until it is told to
/// end. Call it from `main` and return what it returns.
///
/// `factory` is called in the calling thread, before any port is open. The tables that it asks for
/// are made then.
pub fn main<A, F>(factory: F) -> ExitCode
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    ExitCode::from(main_from(std::env::args_os(), &Arc::default(), factory))
}

/// As [`main`], with a command line from elsewhere, the program's name first, and a word that ends
/// the run as SIGINT does once it is true. Returns the exit status.
///
/// From then on the process ends by SIGINT and SIGTERM as every application does: call it once.
pub fn main_from<A, F>(
    arguments: impl IntoIterator<Item = OsString>,
    stop: &Arc<AtomicBool>,
    factory: F,
) -> u8
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    main_of(&Program::default(), arguments, stop, factory)
}

/// As [`main_from`], of a program of its own.
pub(crate) fn main_of<A, F>(
    what: &Program,
    arguments: impl IntoIterator<Item = OsString>,
    stop: &Arc<AtomicBool>,
    factory: F,
) -> u8
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    let mut words: Vec<OsString> = arguments.into_iter().collect();
    let program = program_name(words.first().map(Path::new));
    if words.is_empty() {
        words.push(program.clone().into());
    }
    let command = Arguments::command().display_name(&program).bin_name(&program);
    let matches = command.try_get_matches_from(words);
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print(); // as in `say`
            return error.exit_code().try_into().unwrap_or(2);
        }
    };
    match start(what, &arguments, &program, stop, factory) {
        Ok(()) => 0,
        Err(error) => {
            say(std::io::stderr(), format_args!("{program}: {error}\n"));
            error.exit_status()
        }
    }
}

fn start<A, F>(
    what: &Program,
    arguments: &Arguments,
    program: &str,
    stop: &Arc<AtomicBool>,
    mut factory: F,
) -> Result<(), Error>
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    if arguments.schema {
        say(std::io::stdout(), format_args!("{}", what.schema()));
        return Ok(());
    }
    crate::log(arguments.verbose);
    let plan = config::load(Source {
        path: arguments.config.clone().unwrap_or_default(),
        overrides: arguments.overrides.clone(),
        program: program.to_owned(),
        app_defaults: what.app_defaults.clone(),
    })?;
    if arguments.check {
        let tables = &Tables::new(plan.tables.clone(), vec![]);
        let mirror = MirrorService::open(&plan)?;
        let mirror = mirror.as_ref();
        let lane = |index| LaneInfo { plan: &plan, index, tables, mirror };
        (0..plan.lanes.len()).try_for_each(|index| factory(&lane(index)).map(|_| ()))?;
        let report = crate::check::examine(&plan)?;
        say(std::io::stdout(), format_args!("{report}\n"));
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::Run(format!("cannot handle signals: {error}"));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order the first signal stops the lanes and the second ends the process.
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

/// Writes for a person. That nobody reads it (a closed pipe) is no failure of the run, unlike with
/// `println`, which panics.
fn say(mut to: impl Write, text: std::fmt::Arguments<'_>) {
    let _ = to.write_fmt(text);
}

fn program_name(path: Option<&Path>) -> String {
    let name = path.and_then(|path| path.file_name()?.to_str().map(str::to_owned));
    name.unwrap_or_else(|| "fastlane-app".to_owned())
}

/// From now on what this process logs (by `tracing`) goes to standard error: warnings and what was
/// chosen for 0, why for 1, everything for more. [`main`](crate::main) does it with the number of
/// times that `-v` was given; other programs around the framework, as slow paths, call it once,
/// before anything is logged.
///
/// A line is the level and the message, without time, coloured on a terminal. Where a program has
/// set a subscriber of its own before, nothing is changed.
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
    // Only fails when the program has set its own, which is then the right one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
