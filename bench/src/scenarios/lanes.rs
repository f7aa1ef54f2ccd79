//! Several lanes at once.

pub mod parallel;

use crate::Result;
use crate::report::Report;
use crate::report::figure::{Figure, Style};
use crate::scenarios::Options;
use crate::scenarios::lanes::parallel::{Work, cpus, round};

/// Measures the cost of a packet in each of several lanes.
///
/// # Errors
/// Returns an error if no packet moves.
pub fn lanes(report: &mut Report, options: &Options) -> Result<()> {
    let title = "CPU time per packet and lane by number of lanes, ns";
    let mut figure = Figure::new("fig-6-lanes", title, "Lanes", Style::Lines);
    let cpus = cpus().len();
    let (fit, beyond): (Vec<usize>, Vec<usize>) =
        options.lanes.iter().partition(|&&lanes| lanes <= cpus);
    if !beyond.is_empty() {
        report.left_out.push(format!("{beyond:?} lanes at once: this machine has {cpus} CPUs"));
    }
    // Each round measures all numbers of lanes, so that other load on the machine affects all of
    // them.
    for number in 0..options.effort.pairs {
        options.tell("lanes", number);
        for work in Work::ALL {
            for &lanes in fit.iter().filter(|&&lanes| work.suits(lanes)) {
                let costs = round(work, lanes, options.effort.slice / 4)?;
                let place = lanes.to_string();
                costs.into_iter().for_each(|cost| figure.add(&work.to_string(), &place, cost));
            }
        }
    }
    report.figures.push(figure);
    Ok(())
}
