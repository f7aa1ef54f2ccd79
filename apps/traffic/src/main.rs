//! Sends frames, counts what becomes of them, and measures how long they take.

use std::process::ExitCode;

use fastlane::Error;
use traffic::report::Report;
use traffic::run::Run;

fn main() -> ExitCode {
    let mut run = Run::default();
    let ended = fastlane::main(|lane| {
        let settings = lane.settings()?;
        run.lane(settings, lane.index(), lane.count(), |name| lane.port(name)).map_err(|error| {
            Error::Value { path: format!("app.{}", error.key), what: error.reason, meant: None }
        })
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

/// The table for people and, where a report is wanted, the JSON for programs. On standard output
/// there is only one of them.
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
