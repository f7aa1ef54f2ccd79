//! `fastlane tables`: lists the tables of a running application.

use std::io::{self, Write};
use std::process::ExitCode;

use fastlane::slow;

use crate::Error;

/// Lists the tables of a running application: kind, entries, capacity and writer.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let failed = |error: slow::SlowError| Error::Failed(error.to_string());
    let slow = slow::attach(&arguments.application).map_err(failed)?;
    let tables = slow.tables().map_err(failed)?;
    let mut stdout = io::stdout().lock();
    if tables.is_empty() {
        writeln!(stdout, "{} has no tables", slow.application().name)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |stdout: &mut io::StdoutLock<'_>, cells: [&str; 6]| {
        let [name, kind, entries, capacity, parts, writer] = cells;
        let line =
            format!("{name:<20} {kind:<6} {entries:>10} {capacity:>10}  {parts:<16} {writer}");
        writeln!(stdout, "{}", line.trim_end())
    };
    row(&mut stdout, ["table", "kind", "entries", "capacity", "lanes write", "writer"])?;
    for table in &tables {
        let (entries, capacity) = (table.entries.to_string(), table.capacity.to_string());
        let parts = match (table.has_state, table.has_pending) {
            (false, false) => "",
            (true, false) => "state",
            (false, true) => "events",
            (true, true) => "state, events",
        };
        let writer = table.writer.as_deref().unwrap_or("none");
        row(&mut stdout, [&table.name, table.kind, &entries, &capacity, parts, writer])?;
    }
    Ok(ExitCode::SUCCESS)
}
