//! A table of numbers that is also a picture: how something depends on something else.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::report::Spread;
use crate::statistics::quantile;

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// A bar for each value: the places have no order.
    Bars,
    /// A line for each series.
    Lines,
}

/// A figure: series over places.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// A short name, which is part of the file's.
    pub name: String,
    /// What it shows, with the unit.
    pub title: String,
    /// What the places are.
    pub along: String,
    /// The places, in order.
    pub places: Vec<String>,
    /// How it is drawn.
    pub style: Style,
    /// One for each way of doing the work.
    pub series: Vec<Series>,
}

/// A row of a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// For each place the values of all rounds; none where nothing was measured.
    pub values: Vec<Vec<f64>>,
}

impl Figure {
    /// An empty figure.
    #[must_use]
    pub fn new(name: &str, title: &str, along: &str, style: Style) -> Self {
        let [name, title, along] = [name, title, along].map(str::to_owned);
        Self { name, title, along, places: Vec::new(), style, series: Vec::new() }
    }

    /// Adds a value; a series or place that is not there comes to the end.
    pub fn add(&mut self, series: &str, place: &str, value: f64) {
        let find = |names: &[String], name: &str| names.iter().position(|known| known == name);
        let place = find(&self.places, place).unwrap_or_else(|| {
            self.places.push(place.to_owned());
            self.places.len() - 1
        });
        let row = self.series.iter().position(|known| known.name == series);
        let row = row.unwrap_or_else(|| {
            self.series.push(Series { name: series.to_owned(), values: Vec::new() });
            self.series.len() - 1
        });
        for series in &mut self.series {
            series.values.resize(self.places.len(), Vec::new());
        }
        self.series[row].values[place].push(value);
    }

    /// The spread of a series at a place, if it was measured there.
    #[must_use]
    pub fn spread(&self, series: usize, place: usize) -> Option<Spread> {
        let values = self.series.get(series)?.values.get(place)?;
        (!values.is_empty()).then(|| Spread {
            median: quantile(values, 0.5),
            low: quantile(values, 0.25),
            high: quantile(values, 0.75),
        })
    }

    /// The most that is drawn: the largest median and some more. An upper quartile may be far
    /// beyond it, which is left to the table.
    #[must_use]
    pub fn most(&self) -> f64 {
        let places = |row: usize| (0..self.places.len()).map(move |place| (row, place));
        let all = (0..self.series.len()).flat_map(places);
        let medians = all.filter_map(|(row, place)| self.spread(row, place));
        1.2 * medians.map(|spread| spread.median).fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Writes it as a table in Markdown.
    ///
    /// # Errors
    /// When `text` cannot be written to; a string always can.
    pub fn table(&self, text: &mut impl Write) -> fmt::Result {
        write!(text, "\n{}: median (quartiles).\n\n| {} |", self.title, self.along)?;
        self.places.iter().try_for_each(|place| write!(text, " {place} |"))?;
        writeln!(text, "\n|---{}|", "|---".repeat(self.places.len()))?;
        for (row, series) in self.series.iter().enumerate() {
            write!(text, "| {} |", series.name)?;
            for place in 0..self.places.len() {
                match self.spread(row, place) {
                    Some(Spread { median, low, high }) => {
                        let digits = digits(median);
                        write!(text, " {median:.digits$} ({low:.digits$}-{high:.digits$}) |")?;
                    }
                    None => write!(text, " - |")?,
                }
            }
            writeln!(text)?;
        }
        Ok(())
    }
}

/// Digits after the point, so that three count or more.
#[must_use]
pub(crate) fn digits(value: f64) -> usize {
    match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_find_their_places() {
        let mut figure = Figure::new("fig", "Cost, ns", "Frame", Style::Lines);
        figure.add("ours", "64 B", 1.0);
        figure.add("theirs", "128 B", 4.0);
        figure.add("ours", "128 B", 120.0);
        figure.add("ours", "64 B", 3.0);
        assert_eq!(figure.spread(0, 0).unwrap().median, 2.0);
        assert!(figure.spread(1, 0).is_none() && figure.spread(2, 0).is_none());
        assert_eq!(figure.most(), 144.0);
        let mut text = String::new();
        figure.table(&mut text).unwrap();
        assert!(
            text.ends_with(
                "| Frame | 64 B | 128 B |\n|---|---|---|\n\
             | ours | 2.00 (1.50-2.50) | 120 (120-120) |\n\
             | theirs | - | 4.00 (4.00-4.00) |\n"
            ),
            "{text}"
        );
    }
}
