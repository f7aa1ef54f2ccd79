//! `fastlane doctor`: reports the capabilities of this machine and the driver settings that suit
//! it.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use fastlane::kernel::Interface;
use serde::Serialize;

use crate::Error;

mod advice;
mod cpu_share;
mod machine;
mod netdev;

use advice::Port;
use cpu_share::CpuShare;
use machine::Machine;

/// Reports what this machine supports and recommends a `driver` for each interface.
///
/// Nothing is loaded, attached or changed, so a driver may still refuse what is reported as
/// possible. `APP CONFIG --check` and the start of the application then name the reason. In a
/// container it warns of CPU throttling, of CPUs that other containers use too, and of devices of
/// another NUMA node.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Interfaces to examine. Default: all of this network namespace
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Report of the doctor.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    cpu_share: CpuShare,
    interfaces: Vec<Port>,
    /// Findings that slow lanes down, with the remedy.
    warnings: Vec<String>,
    /// Problem that prevents any start, with its remedy.
    problems: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let failed = |error: fastlane::kernel::Error| Error::Failed(error.to_string());
    let interfaces = match &arguments.interfaces[..] {
        [] => Interface::all().map_err(failed)?,
        named => {
            let queries = named.iter().map(|name| Interface::query(name));
            queries.collect::<Result<_, _>>().map_err(failed)?
        }
    };
    let machine = Machine::look();
    let (interfaces, note) = advice::ports(&interfaces, &machine);
    let problems = machine.problems().into_iter().chain(note).collect();
    let (root, cpu_share) = (Path::new("/"), CpuShare::look(Path::new("/")));
    let warnings = cpu_share.warnings(root, &machine.cpus.allowed);
    let report = Report { machine, cpu_share, interfaces, warnings, problems };
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n",
        false => report.to_string(),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.fmt(formatter)?;
        self.interfaces.iter().try_for_each(|port| write!(formatter, "\n{port}"))?;
        self.warnings.iter().try_for_each(|warning| write!(formatter, "\nWARNING: {warning}\n"))?;
        self.problems.iter().try_for_each(|problem| write!(formatter, "\nPROBLEM: {problem}\n"))
    }
}

/// Formats text with a hanging indent below a label.
fn fact(formatter: &mut fmt::Formatter<'_>, label: &str, text: &str) -> fmt::Result {
    let mut lines = text.lines();
    writeln!(formatter, "  {label:<13} {}", lines.next().unwrap_or_default())?;
    lines.try_for_each(|line| writeln!(formatter, "  {:<13} {line}", ""))
}

/// Formats a size with a binary prefix.
fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = UNITS.into_iter().find(|(shift, _)| bytes >= 1 << shift);
    let mut text = String::new();
    let _ = match fitting {
        Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => {
            write!(text, "{} {unit}", bytes >> shift)
        }
        Some((shift, unit)) => write!(text, "{:.1} {unit}", bytes as f64 / f64::from(1 << shift)),
        None => write!(text, "{bytes} B"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        let texts = [0, 1023, 2048, 1536, 8 << 20, 3 << 29].map(size);
        assert_eq!(texts, ["0 B", "1023 B", "2 KiB", "1.5 KiB", "8 MiB", "1.5 GiB"]);
    }
}
