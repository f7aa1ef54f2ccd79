//! `fastlane top`: live rates of a running application.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fastlane::session::{self, Client, SessionError};
use fastlane_terminal::{number, plain, screen as live};

use crate::Error;

mod rates;
mod sample;
mod screen;
mod table;

use rates::Rates;
use sample::Sample;

/// Shows the rates of a running application: packets, bits, verdicts and drops of each lane and
/// port.
///
/// The counters are read from shared memory, which costs the lanes nothing. Only root and the user
/// of the application may read them.
///
/// Packets per second are counted at the application. Gb/s are those of frames without preamble and
/// frame check sequence. Verdicts are shares of the packets received during the interval. Drops are
/// shown by drop reason, if there were any. A port that is down (its interface is removed, or has
/// no link) is shown with the reason.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// Interval, such as `1s`, `500ms` or `2.5s` (100ms to 1h)
    #[arg(long, default_value = "1s", value_parser = number::interval)]
    interval: Duration,
    /// Print the rates of one interval and exit; with `--json` print the totals immediately
    #[arg(long)]
    once: bool,
    /// Print totals as JSON, one line per interval, instead of rates
    #[arg(long)]
    json: bool,
    /// Print a table per interval instead of a live screen; the default without a terminal
    #[arg(long, conflicts_with = "json")]
    plain: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = attach(&arguments.application)?;
    let interval = arguments.interval;
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let is_plain = arguments.plain || arguments.once || !terminal;
    let mut stdout = io::stdout().lock();
    if arguments.json {
        totals(&client, interval, arguments.once, &mut stdout)?;
    } else if is_plain {
        tables(&client, interval, arguments.once, &mut stdout)?;
    } else {
        drop(stdout);
        if live::run(&mut screen::Watched::new(&client), interval)? == live::End::Asked {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if !client.is_alive() {
        let application = &client.application;
        eprintln!("fastlane: {} (process {}) has ended", application.name, application.pid);
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to an application by its name or by the path of its session.
pub(crate) fn attach(application: &str) -> Result<Client, Error> {
    let path = path_of(application);
    session::connect(&path).map_err(|error| {
        let hint = matches!(error, SessionError::Absent { .. }).then(|| running(&path));
        Error::Failed(format!("{error}{}", hint.flatten().unwrap_or_default()))
    })
}

fn path_of(application: &str) -> PathBuf {
    if application.contains('/') { application.into() } else { session::path(application) }
}

/// Returns a hint with the names of existing sessions.
fn running(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(path.parent()?).ok()?;
    let names = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".sock").map(str::to_owned)
    });
    let mut names: Vec<_> = names.filter(|name| !name.chars().any(char::is_control)).collect();
    names.sort();
    (!names.is_empty()).then(|| format!("; sessions there: {}", names.join(", ")))
}

fn totals(
    client: &Client,
    interval: Duration,
    once: bool,
    output: &mut impl Write,
) -> Result<(), Error> {
    loop {
        let sample = serde_json::to_string(&Sample::take(client)).map_err(io::Error::from)?;
        writeln!(output, "{sample}")?;
        output.flush()?;
        if once || !pause(client, interval) {
            return Ok(());
        }
    }
}

fn tables(
    client: &Client,
    interval: Duration,
    once: bool,
    output: &mut impl Write,
) -> Result<(), Error> {
    let mut before = Sample::take(client);
    loop {
        let alive = pause(client, interval);
        let sample = Sample::take(client);
        let rates = Rates::between(&before, &sample);
        write!(output, "{}", plain(&table::page(&client.application, &rates)))?;
        output.flush()?;
        if once || !alive {
            return Ok(());
        }
        before = sample;
    }
}

/// Waits for the interval. Returns false if the application has ended.
fn pause(client: &Client, interval: Duration) -> bool {
    const STEP: Duration = Duration::from_millis(100);
    let end = Instant::now() + interval;
    loop {
        if !client.is_alive() {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STEP));
    }
}

#[cfg(test)]
mod tests;
