//! Prints a report as Markdown tables.

use std::fmt::{self, Write};

use crate::report::{Comparison, IdleLine, Kind, Report, RoundTrip, Spread};
use crate::statistics::{Estimate, median, quantile};

/// Returns the report in Markdown.
#[must_use]
pub fn tables(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, report);
    text
}

fn write(text: &mut String, report: &Report) -> fmt::Result {
    writeln!(
        text,
        "{} at {}: {} x {}, {} MiB of huge pages, Linux {}, load {:.1} to {:.1}; {} pairs of \
         slices of {} ms.",
        report.date,
        report.revision,
        report.processors,
        report.processor,
        report.huge_pages_mib.unwrap_or(0),
        report.linux,
        report.load[0],
        report.load[1],
        report.pairs,
        report.slice_ms
    )?;
    if !report.comparisons.is_empty() {
        write!(
            text,
            "\nCPU time per packet in ns: median (quartiles). Ratio or difference: median of the \
             pairs [95 % interval].\n\n| Work | Ours | Compared with | Result | Goal |\n\
             |---|---|---|---|---|\n"
        )?;
        report.comparisons.iter().try_for_each(|comparison| row(text, comparison))?;
    }
    if !report.idle.is_empty() {
        idle(text, &report.idle)?;
    }
    if !report.round_trips.is_empty() {
        write!(
            text,
            "\nRound trip of one 60-byte frame in µs: median of the rounds (lowest to highest). \
             Above `interrupt`: median of the differences in a round [95 % interval].\n\
             \n| Mechanism | Idle | Frames | p50 | Above `interrupt` | p99 | Sent | Lost |\n\
             |---|---|---|---|---|---|---|---|\n"
        )?;
        report.round_trips.iter().try_for_each(|trip| round_trip(text, trip))?;
    }
    report.figures.iter().try_for_each(|figure| figure.table(text))?;
    report.left_out.iter().try_for_each(|why| writeln!(text, "\nNot measured: {why}."))
}

fn row(text: &mut String, comparison: &Comparison) -> fmt::Result {
    let digits = if median(&comparison.ours_ns) < 100.0 { 2 } else { 0 };
    let cost = |name: &str, values: &[f64]| {
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|at| quantile(values, at));
        format!("{name}: {middle:.digits$} ({low:.digits$}-{high:.digits$})")
    };
    let estimate = comparison.estimate;
    let (result, goal) = match comparison.kind {
        Kind::Ratio => ("x", "at most "),
        Kind::Difference => (" ns more", "at most +"),
        Kind::Cost => (" ns", "at most "),
    };
    let goal = match (comparison.bound, comparison.verdict) {
        (Some(bound), Some(verdict)) => format!("{goal}{bound}: **{verdict}**"),
        _ => "-".to_owned(),
    };
    writeln!(
        text,
        "| {} | {} | {} | {:.3}{result} [{:.3}, {:.3}] | {goal} |",
        comparison.work,
        cost(&comparison.ours, &comparison.ours_ns),
        cost(&comparison.rival, &comparison.rival_ns),
        estimate.value,
        estimate.low,
        estimate.high,
    )
}

/// Writes a row for each policy with a column for each load.
fn idle(text: &mut String, lines: &[IdleLine]) -> fmt::Result {
    write!(
        text,
        "\nCPU of the lane in % of a core, by load in parts of the most it echoes: median of the \
         rounds (lowest to highest) [95 % interval of the median].\n\n"
    )?;
    for (number, policy) in lines.chunk_by(|a, b| a.policy == b.policy).enumerate() {
        if number == 0 {
            write!(text, "| Idle |")?;
            policy.iter().try_for_each(|line| write!(text, " {:.0} % |", line.load * 100.0))?;
            writeln!(text, "\n|---{}|", "|---".repeat(policy.len()))?;
        }
        write!(text, "| {} |", policy[0].policy)?;
        for line in policy {
            let percent = |part: f64| format!("{:.1}", part * 100.0);
            let Spread { median, low, high } = line.core;
            write!(text, " {} ({}-{})", percent(median), percent(low), percent(high))?;
            let Estimate { low, high, .. } = line.core_interval;
            write!(text, " [{}, {}] |", percent(low), percent(high))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn round_trip(text: &mut String, trip: &RoundTrip) -> fmt::Result {
    let spread =
        |spread: &Spread| format!("{:.1} ({:.1}-{:.1})", spread.median, spread.low, spread.high);
    let Estimate { value, low, high } = trip.above_interrupt_us;
    writeln!(
        text,
        "| {} | {} | {} | {} | {value:.1} [{low:.1}, {high:.1}] | {} | {} | {} |",
        trip.mechanism,
        trip.policy,
        trip.pace,
        spread(&trip.p50_us),
        spread(&trip.p99_us),
        trip.frames,
        trip.lost
    )
}
