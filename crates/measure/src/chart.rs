//! Charts as SVG: lines over a few categories, and the distribution of ratios.

use std::fmt::{self, Write};

use crate::statistics::{Estimate, Spread};
use crate::svg::{close, label, open};

/// Width and height of a chart, in pixels.
const CELL: [f64; 2] = [560.0, 280.0];
/// Left, right, upper and lower edge of the plot area, in pixels.
const PLOT: [f64; 4] = [70.0, 430.0, 40.0, 240.0];
/// Distinguishable colours, also for colour-blind readers.
const COLOURS: [&str; 8] =
    ["#1f6f8b", "#d1712a", "#5a8f3c", "#8a4f9e", "#7d7d7d", "#b03a48", "#c9a227", "#3b4cc0"];

/// Chart with lines over categories.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title with the unit of the values.
    pub title: String,
    /// Categories, from left to right.
    pub categories: Vec<String>,
    /// Scale of the values: logarithmic if true, else linear.
    pub logarithmic: bool,
    /// Lines of the chart.
    pub lines: Vec<Line>,
}

/// Line with a value for each category.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Values; a category may have none.
    pub points: Vec<Option<Spread>>,
}

/// Converts values into spreads without width. A value that is not finite becomes `None`.
#[must_use]
pub fn points(values: impl IntoIterator<Item = f64>) -> Vec<Option<Spread>> {
    let spread = |value: f64| Spread { median: value, low: value, high: value };
    values.into_iter().map(|value| value.is_finite().then(|| spread(value))).collect()
}

/// Draws charts as SVG in a grid with `columns` columns.
#[must_use]
pub fn grid(charts: &[Chart], columns: usize) -> String {
    let columns = columns.clamp(1, charts.len().max(1));
    let rows = charts.len().div_ceil(columns);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = open(&mut text, CELL[0] * columns as f64, CELL[1] * rows as f64);
    for (number, chart) in charts.iter().enumerate() {
        let (x, y) = ((number % columns) as f64 * CELL[0], (number / columns) as f64 * CELL[1]);
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">");
        let _ = chart.draw(&mut text);
        let _ = writeln!(text, "</g>");
    }
    let _ = close(&mut text);
    text
}

/// Mapping of values to vertical positions.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Self {
        let positive = values.clone().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        if logarithmic && least.is_finite() {
            let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
            let high = high.max(low + 1);
            let ticks = (low..=high).map(|power| 10_f64.powi(power)).collect();
            return Self { low: f64::from(low), high: f64::from(high), logarithmic: true, ticks };
        }
        let ticks = ticks(most);
        let high = ticks.last().copied().unwrap_or(1.0);
        Self { low: 0.0, high, logarithmic: false, ticks }
    }

    fn y(&self, value: f64) -> f64 {
        let place = if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let part = (place - self.low) / (self.high - self.low);
        PLOT[3] - (PLOT[3] - PLOT[2]) * part.clamp(0.0, 1.0)
    }
}

/// Returns evenly spaced round numbers from 0 to at or above `most`, usually six or fewer.
#[must_use]
pub fn ticks(most: f64) -> Vec<f64> {
    let step = round_step(most.max(f64::MIN_POSITIVE) / 5.0);
    let count = (most / step).ceil().max(1.0);
    (0..=count as u32).map(|tick| f64::from(tick) * step).collect()
}

/// Returns the smallest number at or above `step` that is 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Formats a number with the suffix k, M or G.
#[must_use]
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = if scaled.abs() >= 100.0 || scaled.fract() == 0.0 { 0 } else { 2 };
    let text = format!("{scaled:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

impl Chart {
    fn draw(&self, text: &mut String) -> fmt::Result {
        let [left, right, upper, lower] = PLOT;
        label(text, 12.0, 22.0, "start", &self.title)?;
        let spreads = self.lines.iter().flat_map(|line| line.points.iter().flatten());
        let values = spreads.flat_map(|spread| [spread.low, spread.median, spread.high]);
        let axis = Axis::of(values, self.logarithmic);
        for tick in &axis.ticks {
            let y = axis.y(*tick);
            writeln!(text, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#dddddd\"/>")?;
            label(text, left - 8.0, y + 4.0, "end", &short(*tick))?;
        }
        let step = (right - left) / self.categories.len().max(1) as f64;
        let x = |place: usize| left + step * (place as f64 + 0.5);
        for (place, category) in self.categories.iter().enumerate() {
            label(text, x(place), lower + 18.0, "middle", category)?;
        }
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            line.draw(text, &axis, x, colour)?;
            let y = upper + 8.0 + 18.0 * number as f64;
            writeln!(
                text,
                "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
                right + 14.0,
                y - 9.0
            )?;
            label(text, right + 30.0, y, "start", &line.name)?;
        }
        Ok(())
    }
}

impl Line {
    fn draw(
        &self,
        text: &mut String,
        axis: &Axis,
        x: impl Fn(usize) -> f64,
        colour: &str,
    ) -> fmt::Result {
        let (mut path, mut command) = (String::new(), 'M');
        for (place, point) in self.points.iter().enumerate() {
            let Some(Spread { median, low, high }) = point else {
                command = 'M';
                continue;
            };
            let (x, y) = (x(place), axis.y(*median));
            write!(path, "{command}{x:.1} {y:.1}")?;
            command = 'L';
            let (low, high) = (axis.y(*low), axis.y(*high));
            writeln!(
                text,
                "<path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\"/>\n\
                 <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            )?;
        }
        if path.is_empty() {
            return Ok(());
        }
        writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>")
    }
}

/// Ratios of pairs and their estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// Name of the row.
    pub name: String,
    /// Ratio of each pair, in order.
    pub values: Vec<f64>,
    /// Median with its interval, drawn as a band.
    pub estimate: Estimate,
    /// Upper bound of the ratio, drawn as a line.
    pub bound: Option<f64>,
}

/// Draws the distribution of ratios as SVG: one row for each of `rows`, one dot for each pair, from
/// the first pair (top) to the last.
#[must_use]
pub fn distribution(title: &str, rows: &[Ratios]) -> String {
    let [left, right, row] = [170.0, 620.0, 110.0];
    let [width, height] = [760.0, 60.0 + row * rows.len() as f64];
    let values = rows.iter().flat_map(|row| row.values.iter().chain(&row.bound).copied());
    let values = values.chain([1.0]).filter(|value| value.is_finite());
    let widest = values.map(|value| (value - 1.0).abs()).fold(0.0, f64::max);
    let step = round_step(widest.max(0.01) / 3.0);
    let reach = (widest / step).ceil().max(1.0) * step;
    let x = |ratio: f64| {
        let part = (ratio - 1.0 + reach) / (2.0 * reach);
        left + (right - left) * part.clamp(0.0, 1.0)
    };
    let mut text = String::new();
    let mut draw = || -> fmt::Result {
        open(&mut text, width, height)?;
        label(&mut text, 12.0, 22.0, "start", title)?;
        let count = (reach / step).round() as i32;
        for tick in -count..=count {
            let ratio = 1.0 + f64::from(tick) * step;
            let (x, end) = (x(ratio), height - 22.0);
            let colour = if tick == 0 { "#888888" } else { "#dddddd" };
            writeln!(text, "<path d=\"M{x:.1} 36V{end:.1}\" stroke=\"{colour}\"/>")?;
            let digits = if step < 0.0095 { 3 } else { 2 };
            label(&mut text, x, height - 6.0, "middle", &format!("{ratio:.digits$}"))?;
        }
        for (number, ratios) in rows.iter().enumerate() {
            let top = 40.0 + row * number as f64;
            ratios.draw(&mut text, &x, [top, row - 10.0], COLOURS[number % COLOURS.len()])?;
        }
        close(&mut text)
    };
    // Writing to a string does not fail.
    let _ = draw();
    text
}

impl Ratios {
    fn draw(
        &self,
        text: &mut String,
        x: &impl Fn(f64) -> f64,
        [top, height]: [f64; 2],
        colour: &str,
    ) -> fmt::Result {
        let Estimate { value, low, high } = self.estimate;
        let (start, end) = (x(low), x(high));
        writeln!(
            text,
            "<rect x=\"{start:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\" opacity=\"0.2\"/>\n\
             <path d=\"M{:.1} {top:.1}v{height:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            (end - start).max(1.0),
            x(value)
        )?;
        if let Some(bound) = self.bound {
            let x = x(bound);
            writeln!(
                text,
                "<path d=\"M{x:.1} {top:.1}v{height:.1}\" stroke=\"black\" \
                 stroke-dasharray=\"4 3\"/>"
            )?;
        }
        let step = height / self.values.len().max(1) as f64;
        for (number, ratio) in self.values.iter().enumerate() {
            let (x, y) = (x(*ratio), top + step * (number as f64 + 0.5));
            writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>")?;
        }
        let middle = top + height / 2.0;
        label(text, 12.0, middle, "start", &self.name)?;
        let result = format!("{value:.3} [{low:.3}, {high:.3}]");
        label(text, 632.0, middle, "start", &result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (950.0, "950"), (0.25, "0.25"), (9999.0, "9999")];
        let larger = [(12_500.0, "12.5 k"), (1e6, "1 M"), (14_880_952.0, "14.88 M"), (2e9, "2 G")];
        for (value, expected) in cases.into_iter().chain(larger) {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn an_axis_ends_at_or_above_the_largest_value_in_round_steps() {
        for most in [0.0, 0.003, 1.0, 7.0, 99.0, 123_456.0, 14_880_952.0] {
            let axis = Axis::of([most].into_iter(), false);
            assert!(axis.high >= most && axis.ticks.len() <= 7, "{most} {:?}", axis.ticks);
            assert!(axis.y(axis.high) <= PLOT[2] + 1e-9 && axis.y(0.0) == PLOT[3]);
        }
        let axis = Axis::of([350.0, 42_000.0].into_iter(), true);
        assert_eq!(axis.ticks, [100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!((axis.y(100.0), axis.y(100_000.0)), (PLOT[3], PLOT[2]));
    }

    #[test]
    fn a_gap_interrupts_the_line() {
        let line = Line { name: "x".into(), points: points([1.0, f64::NAN, 3.0, 4.0]) };
        let chart = Chart {
            title: "t".into(),
            categories: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            logarithmic: false,
            lines: vec![line],
        };
        let svg = grid(&[chart], 2);
        assert_eq!(svg.matches("<circle").count(), 3);
        let path = svg.lines().find(|line| line.contains("fill=\"none\"")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn every_pair_is_a_dot_in_a_distribution() {
        let estimate = Estimate { value: 1.02, low: 1.01, high: 1.03 };
        let row =
            |bound| Ratios { name: "a < b".into(), values: vec![1.0, 1.02, 1.04], estimate, bound };
        let svg = distribution("ratios", &[row(None), row(Some(1.05))]);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert!(svg.contains("a &lt; b") && svg.contains("1.020 [1.010, 1.030]"));
    }
}
