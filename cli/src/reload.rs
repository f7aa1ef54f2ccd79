//! `fastlane reload`: other steering rules for a running application.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use fastlane::session::ReplacedRules;

use crate::Error;

/// Lets the `steer` of each port of a configuration be in force in a running application.
///
/// Each frame is judged by the old rules or by the new ones, and no frame is lost. All else can
/// only change with a restart: when another key differs, it is named and nothing changes. What was
/// given to the application by `--set` counts as given again.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The name of the application, or the path of its session socket (anything with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// The configuration; the file with which the application was started when there is none
    config: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = crate::top::attach(&arguments.application)?;
    let read = |path: &PathBuf| {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path);
        text.map(|text| (place.clone(), text))
            .map_err(|error| Error::Failed(format!("cannot read {place}: {error}")))
    };
    let file = arguments.config.as_ref().map(read).transpose()?;
    let changed = client.reload(file).map_err(|error| Error::Failed(error.to_string()))?;
    let mut stdout = io::stdout().lock();
    if changed.is_empty() {
        writeln!(stdout, "nothing differs")?;
    }
    for ReplacedRules { port, before, now } in &changed {
        writeln!(stdout, "port `{port}`: {} rules, {} before", now.len(), before.len())?;
        let words = |rules: &[_]| -> Result<Vec<String>, io::Error> {
            let text = |rule| serde_json::to_string(rule).map_err(io::Error::from);
            rules.iter().map(text).collect()
        };
        let (before, now) = (words(before)?, words(now)?);
        for rule in before.iter().filter(|rule| !now.contains(rule)) {
            writeln!(stdout, "  - {rule}")?;
        }
        for rule in now.iter().filter(|rule| !before.contains(rule)) {
            writeln!(stdout, "  + {rule}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
