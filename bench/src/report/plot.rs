//! Draws a report as SVG: bars with whiskers, and CPU by load as lines.

use std::fmt::{self, Write};

use fastlane_measure::svg::{self, BAR, label};

use crate::report::{Comparison, IdleLine, Kind, Report};

/// Width of the drawing, and of the text at its right.
const DRAWN: f64 = 280.0;
const WRITTEN: f64 = 240.0;
/// Minimum width of the text at the left of the drawing.
const LEFT: f64 = 240.0;
const OURS: &str = "#1f6f8b";
const RIVAL: &str = "#b9c4c9";
const COLOURS: [&str; 3] = ["#b9583b", "#8a9a3b", "#1f6f8b"];
/// Heights of a pair of bars, and of the panel of lines.
const PAIR: f64 = 42.0;
const LINES: f64 = 260.0;

/// Returns the picture as SVG.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, report);
    text
}

fn write(text: &mut String, report: &Report) -> fmt::Result {
    let groups = groups(&report.comparisons);
    let bars: f64 = groups.iter().map(|group| group.len() as f64 * PAIR + 26.0).sum();
    let lines = if report.idle.is_empty() { 0.0 } else { LINES };
    let height = 50.0 + bars + lines;
    let left = left(&report.comparisons);
    svg::open(text, left + DRAWN + WRITTEN, height)?;
    let title = format!("CPU time per packet, ns: median and quartiles, {}", report.date);
    label(text, 12.0, 22.0, "start", &title)?;
    let mut y = 40.0;
    for group in groups {
        let most = group.iter().flat_map(|one| one.ours_ns.iter().chain(&one.rival_ns));
        let scale = DRAWN / most.fold(1.0, |most: f64, value| most.max(*value));
        for comparison in group {
            pair(text, comparison, [left, y], scale)?;
            y += PAIR;
        }
        y += 26.0;
    }
    if !report.idle.is_empty() {
        cpu(text, &report.idle, [left, y])?;
    }
    svg::close(text)
}

/// Collects neighbouring comparisons of the same kind, which share a scale.
fn groups(comparisons: &[Comparison]) -> Vec<&[Comparison]> {
    comparisons.chunk_by(|a, b| a.kind == b.kind).collect()
}

/// Returns the left edge of the bars: the right end of the longest label.
fn left(comparisons: &[Comparison]) -> f64 {
    let words = comparisons.iter().flat_map(|one| [one.work.clone(), versus(one)]);
    words.map(|words| 20.0 + svg::width(&words)).fold(LEFT, f64::max)
}

fn versus(comparison: &Comparison) -> String {
    format!("{} / {}", comparison.ours, comparison.rival)
}

fn pair(
    text: &mut String,
    comparison: &Comparison,
    [left, y]: [f64; 2],
    scale: f64,
) -> fmt::Result {
    label(text, left - 8.0, y + BAR, "end", &comparison.work)?;
    label(text, left - 8.0, y + 2.0 * BAR, "end", &versus(comparison))?;
    svg::bar(text, [left, y], &comparison.ours_ns, scale, OURS)?;
    svg::bar(text, [left, y + BAR + 1.0], &comparison.rival_ns, scale, RIVAL)?;
    let estimate = comparison.estimate;
    let what = match comparison.kind {
        Kind::Ratio => "ratio ",
        Kind::Difference => "difference ",
        Kind::Cost => "cost ",
    };
    let result = format!("{what}{:.2} [{:.2}, {:.2}]", estimate.value, estimate.low, estimate.high);
    label(text, left + DRAWN + 12.0, y + BAR, "start", &result)?;
    let verdict = match (comparison.bound, comparison.verdict) {
        (Some(bound), Some(verdict)) => format!("at most {bound}: {verdict}"),
        _ => return Ok(()),
    };
    label(text, left + DRAWN + 12.0, y + 2.0 * BAR, "start", &verdict)
}

/// Draws one line for each policy over evenly spaced loads, which differ by orders of magnitude.
fn cpu(text: &mut String, lines: &[IdleLine], [left, top]: [f64; 2]) -> fmt::Result {
    let right = left + DRAWN;
    let (top, bottom) = (top + 30.0, top + LINES - 50.0);
    label(text, 12.0, top - 12.0, "start", "CPU of the lane, % of a core, by load")?;
    let y = |core: f64| bottom - (bottom - top) * core.min(1.0);
    for percent in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = y(percent);
        writeln!(text, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#dddddd\"/>")?;
        label(text, left - 8.0, y + 4.0, "end", &format!("{:.0} %", percent * 100.0))?;
    }
    let policies = lines.chunk_by(|a, b| a.policy == b.policy);
    for (number, (policy, colour)) in policies.zip(COLOURS).enumerate() {
        let step = DRAWN / (policy.len().max(2) - 1) as f64;
        let mut path = String::new();
        for (index, line) in policy.iter().enumerate() {
            let x = left + step * index as f64;
            let command = if index == 0 { 'M' } else { 'L' };
            write!(path, "{command}{x:.1} {:.1}", y(line.core.median))?;
            writeln!(
                text,
                "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-width=\"4\"/>",
                y(line.core.low),
                y(line.core.high)
            )?;
            if number == 0 {
                label(text, x, bottom + 18.0, "middle", &format!("{:.0} %", line.load * 100.0))?;
            }
        }
        writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>")?;
        let (x, y) = (right + 24.0, top + 12.0 + 18.0 * number as f64);
        writeln!(
            text,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            y - 9.0
        )?;
        label(text, x + 16.0, y, "start", &policy[0].policy)?;
    }
    Ok(())
}
