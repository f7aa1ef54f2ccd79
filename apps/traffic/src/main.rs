//! Program `traffic`: sends frames, counts received and lost ones, and measures latency.

use std::process::ExitCode;

use fastlane::Error;
use serde_json::{Map, Value};
use traffic::report::Report;
use traffic::run::Run;
use traffic::trials::Trials;

fn main() -> ExitCode {
    let mut run = Run::default();
    let ended = fastlane::main(|lane| {
        let settings = lane.settings()?;
        let (index, count) = (lane.index(), lane.count());
        let app = run.lane(settings, index, count, |name| lane.port(name)).map_err(|error| {
            Error::Value { path: format!("app.{}", error.key), what: error.reason, meant: None }
        })?;
        let ports = lane.port_names().map(str::to_owned).collect();
        if let Some(trials) = run.trials(count, ports).filter(|_| index + 1 == count) {
            let settings = lane.settings()?;
            // The thread is not joined: only the end of the process ends its wait for input.
            std::thread::spawn(move || carry_out(trials, &settings));
        }
        Ok(app)
    });
    let Some((report, path)) = run.report() else {
        return ended;
    };
    match write(&report, path) {
        Ok(()) => ended,
        Err(error) => {
            eprintln!("traffic: cannot write the report {}: {error}", path.unwrap_or("-"));
            ExitCode::from(5)
        }
    }
}

/// Carries out the trials that standard input orders.
fn carry_out(trials: Trials, settings: &Map<String, Value>) {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    if let Err(error) = trials.carry_out(settings, input, output) {
        eprintln!("traffic: the trials end here: {error}");
    }
}

/// Writes the table and, if `path` is given, the JSON report. Standard output gets only one of
/// them: the JSON if `path` is `-`, else the table.
fn write(report: &Report, path: Option<&str>) -> std::io::Result<()> {
    let Some(path) = path else {
        print!("{report}");
        return Ok(());
    };
    let json = serde_json::to_string_pretty(report)? + "\n";
    if path == "-" {
        eprint!("{report}");
        print!("{json}");
        return Ok(());
    }
    print!("{report}");
    std::fs::write(path, json)
}
