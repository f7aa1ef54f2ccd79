//! `fastlane reload`: replaces the steering rules of a running application.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use fastlane::session::ReplacedRules;

use crate::Error;

/// Replaces the steering rules of a running application by those of a configuration.
///
/// Each frame is matched against either the old or the new rules, and no frame is lost. All other
/// keys need a restart: if one differs, the command names it and changes nothing. The `--set`
/// overrides of the application apply again.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// Configuration file. Default: the file with which the application was started
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
