//! A table of numbers that is also drawn: results as a function of a parameter.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::report::Spread;
use crate::statistics::quantile;

/// Style in which a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// Bar for each value: the parameter has no order.
    Bars,
    /// Line for each series.
    Lines,
}

/// Figure with series over the values of a parameter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Short name, used in the file name.
    pub name: String,
    /// Title with the unit.
    pub title: String,
    /// Name of the parameter.
    pub along: String,
    /// Values of the parameter, in order.
    pub places: Vec<String>,
    /// Drawing style.
    pub style: Style,
    /// Series, one for each contender.
    pub series: Vec<Series>,
}

/// Row of a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Name of the contender.
    pub name: String,
    /// Results of all rounds for each value of the parameter; empty where nothing was measured.
    pub values: Vec<Vec<f64>>,
}

impl Figure {
    /// Creates an empty figure.
    #[must_use]
    pub fn new(name: &str, title: &str, along: &str, style: Style) -> Self {
        let [name, title, along] = [name, title, along].map(str::to_owned);
        Self { name, title, along, places: Vec::new(), style, series: Vec::new() }
    }

    /// Adds a result. A new series or parameter value is appended.
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

    /// Returns the spread of a series at an index, if it was measured there.
    #[must_use]
    pub fn spread(&self, series: usize, place: usize) -> Option<Spread> {
        let values = self.series.get(series)?.values.get(place)?;
        (!values.is_empty()).then(|| Spread {
            median: quantile(values, 0.5),
            low: quantile(values, 0.25),
            high: quantile(values, 0.75),
        })
    }

    /// Returns the upper end of the scale: 1.2 times the largest median. Upper quartiles beyond it
    /// are shown only in the table.
    #[must_use]
    pub fn most(&self) -> f64 {
        let places = |row: usize| (0..self.places.len()).map(move |place| (row, place));
        let all = (0..self.series.len()).flat_map(places);
        let medians = all.filter_map(|(row, place)| self.spread(row, place));
        1.2 * medians.map(|spread| spread.median).fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Writes the figure as a Markdown table.
    ///
    /// # Errors
    /// Returns an error if `text` cannot be written; writing to a string never fails.
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

/// Returns the number of digits after the decimal point for at least three significant digits.
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
