//! Check of a configuration on this machine, without changing anything.

use std::fmt;
use std::path::Path;

use crate::Error;
use crate::agent::Interfaces;
use crate::config::plan::{KernelPlan, Plan, Source};
use crate::config::{self};

/// Report of a checked configuration.
#[derive(Clone, Debug)]
pub struct Report {
    lines: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    /// Returns warnings about settings that probably do not work as intended.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.lines.join("\n"))?;
        self.warnings.iter().try_for_each(|warning| write!(formatter, "\nwarning: {warning}"))
    }
}

/// Reads the configuration at `path` and checks it against this machine.
///
/// # Errors
/// The first error found.
pub fn check(path: &Path) -> Result<Report, Error> {
    let program = "application".to_owned();
    // Which program reads the file is not known; the router has flows for the kernel tier.
    let offloads_flows = true;
    let source = Source { path: path.to_owned(), program, offloads_flows, ..Source::default() };
    examine(&config::load(source)?)
}

/// Checks a resolved configuration against this machine.
///
/// # Errors
/// The first error found.
pub(crate) fn examine(plan: &Plan) -> Result<Report, Error> {
    crate::threads::check(plan)?;
    let cpus: Vec<String> = plan
        .lanes
        .iter()
        .map(|lane| lane.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()))
        .collect();
    let mut lines = vec![
        format!("name: {}", plan.name),
        format!("lanes: {}, on CPU {}", plan.lanes.len(), cpus.join(", ")),
        format!(
            "pool of each lane: {} frames of {} bytes, {} MiB",
            plan.frames,
            plan.frame_size,
            (plan.frames * plan.frame_size) >> 20
        ),
    ];
    let mut warnings = Vec::new();
    let interfaces = Interfaces::of(crate::privileges::agent(plan).ok().flatten().as_ref());
    for port in &plan.ports {
        let rules = match port.rules.as_slice().len() {
            0 => "everything is fast".to_owned(),
            1 => "1 rule says what is fast".to_owned(),
            count => format!("{count} rules say what is fast"),
        };
        let kernel = match &port.kernel {
            KernelPlan::None => "dropped".to_owned(),
            KernelPlan::ReEnter { .. } => "re-entering the interface".to_owned(),
            KernelPlan::Tap(_) => "through a TAP".to_owned(),
            KernelPlan::OfCarrier => "by the port that carries it, with the tag".to_owned(),
        };
        let vlan = port.vlan.map(|vlan| {
            let carrier = &plan.ports[usize::from(vlan.carrier.0)];
            format!(" {} of `{}`", vlan.id, carrier.name)
        });
        lines.push(format!(
            "port `{}`: {}{}; {rules}; Kernel: {kernel}",
            port.name,
            port.driver.name(),
            vlan.unwrap_or_default()
        ));
        lines.extend(crate::open::examine(plan, port, &interfaces)?);
        if matches!(plan.kernel_of(port), KernelPlan::None) {
            warnings.push(format!(
                "port `{}` has no way into Linux: packets labelled Kernel are dropped and counted \
                 as drop_no_kernel_peer; give it a `kernel`",
                port.name
            ));
        }
    }
    for port in &plan.kernel_ports {
        lines.push(format!("port `{}`: kernel tier on {}", port.name, port.interface));
    }
    Ok(Report { lines, warnings })
}
