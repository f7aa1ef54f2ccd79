//! Draws a figure as SVG.

use std::fmt::{self, Write};

use fastlane_measure::chart::{short, ticks};
use fastlane_measure::svg::{self, label};

use crate::report::figure::{Figure, Series, Style, digits};

/// Width of the drawing, and of the text at its right.
const DRAWN: f64 = 360.0;
const WRITTEN: f64 = 260.0;
/// Position of the upper left corner of the panel of lines.
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
/// Height of the panel of lines.
const PANEL: f64 = 220.0;
/// Height of a row of bars, and of the gap between groups.
const ROW: f64 = 17.0;
const GAP: f64 = 10.0;
const COLOURS: [&str; 12] = [
    "#1f6f8b", "#b9583b", "#8a9a3b", "#6b4c9a", "#3b7d4f", "#c49a2a", "#8b8b8b", "#a04a7a",
    "#2f9c95", "#e07b39", "#4a5fc1", "#5c4033",
];

/// Returns the figure as SVG.
#[must_use]
pub fn svg(figure: &Figure) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match figure.style {
        Style::Bars => bars(&mut text, figure),
        Style::Lines => lines(&mut text, figure),
    };
    text
}

fn colour(row: usize) -> &'static str {
    COLOURS[row % COLOURS.len()]
}

fn number(value: f64) -> String {
    format!("{value:.*}", digits(value))
}

/// Draws a group of bars for each series, with one bar for each parameter value.
fn bars(text: &mut String, figure: &Figure) -> fmt::Result {
    let rows = (figure.series.len() * figure.places.len()) as f64;
    let height = TOP + rows * ROW + figure.series.len() as f64 * GAP + 20.0;
    let name = |series: &Series, place: &String| format!("{}, {place}", series.name);
    let names = figure.series.iter().flat_map(|one| figure.places.iter().map(move |it| (one, it)));
    let widest = names.map(|(series, place)| svg::width(&name(series, place)));
    let left = 20.0 + widest.fold(0.0, f64::max);
    svg::open(text, left + DRAWN + WRITTEN, height)?;
    label(text, 12.0, 22.0, "start", &figure.title)?;
    let scale = DRAWN / figure.most();
    let mut y = TOP;
    for (row, series) in figure.series.iter().enumerate() {
        for (place, along) in figure.places.iter().enumerate() {
            if let Some(spread) = figure.spread(row, place) {
                label(text, left - 8.0, y + 11.0, "end", &name(series, along))?;
                let drawn = series.values[place].iter().map(|value| value.min(figure.most()));
                let drawn: Vec<f64> = drawn.collect();
                svg::bar(text, [left, y], &drawn, scale, colour(place))?;
                let end = left + scale * spread.high.min(figure.most()) + 10.0;
                label(text, end, y + 11.0, "start", &number(spread.median))?;
                y += ROW;
            }
        }
        y += GAP;
    }
    svg::close(text)
}

/// Draws a line for each series over evenly spaced parameter values, with a mark between the
/// quartiles.
fn lines(text: &mut String, figure: &Figure) -> fmt::Result {
    let (right, bottom) = (LEFT + DRAWN, TOP + PANEL);
    svg::open(text, right + WRITTEN, bottom + 60.0)?;
    label(text, 12.0, 22.0, "start", &figure.title)?;
    let ticks = ticks(figure.most());
    let scale = PANEL / ticks.last().copied().unwrap_or(1.0);
    let step = DRAWN / (figure.places.len().max(2) - 1) as f64;
    let (x, y) = (
        |place: usize| LEFT + step * place as f64,
        |value: f64| bottom - scale * value.min(figure.most()),
    );
    for value in ticks {
        let y = bottom - scale * value;
        writeln!(text, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\"/>")?;
        label(text, LEFT - 8.0, y + 4.0, "end", &short(value))?;
    }
    for (place, name) in figure.places.iter().enumerate() {
        label(text, x(place), bottom + 18.0, "middle", name)?;
    }
    label(text, (LEFT + right) / 2.0, bottom + 40.0, "middle", &figure.along)?;
    for (row, series) in figure.series.iter().enumerate() {
        let colour = colour(row);
        let mut path = String::new();
        for place in 0..figure.places.len() {
            let Some(spread) = figure.spread(row, place) else { continue };
            let command = if path.is_empty() { 'M' } else { 'L' };
            write!(path, "{command}{:.1} {:.1}", x(place), y(spread.median))?;
            writeln!(
                text,
                "<path d=\"M{:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-width=\"4\"/>",
                x(place),
                y(spread.low),
                y(spread.high)
            )?;
        }
        writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>")?;
        let y = TOP + 18.0 * row as f64;
        writeln!(
            text,
            "<rect x=\"{}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            right + 16.0,
            y - 9.0
        )?;
        label(text, right + 32.0, y, "start", &series.name)?;
    }
    svg::close(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_a_mark() {
        for (style, marks) in [(Style::Bars, "<rect x"), (Style::Lines, "stroke-width")] {
            let mut figure = Figure::new("fig", "a < b", "size", style);
            figure.add("ours", "64", 1.0);
            figure.add("ours", "128", 2.0);
            figure.add("theirs", "128", 3.0);
            let text = svg(&figure);
            assert_eq!(text.matches(marks).count(), 3, "{text}");
            assert!(text.contains("a &lt; b") && text.ends_with("</svg>\n"));
        }
    }

    #[test]
    fn no_name_begins_outside_of_the_picture() {
        let mut figure = Figure::new("fig", "title", "load", Style::Bars);
        let name = "what has no place in the ring of a lane that is flooded by others";
        figure.add(name, "at a third of what it can", 1.0);
        let text = svg(&figure);
        let ends = text.lines().filter(|line| line.contains("text-anchor=\"end\""));
        let at: Vec<f64> =
            ends.map(|line| line.split('"').nth(1).unwrap().parse().unwrap()).collect();
        let width = svg::width(&format!("{name}, at a third of what it can"));
        assert!(at.len() == 1 && at[0] >= width, "{at:?}");
    }
}
