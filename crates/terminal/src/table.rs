//! Tables with aligned columns.

use std::fmt::Write;

/// A title with tables below it.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// First line.
    pub title: String,
    /// Tables, the most important first. Those without rows are not shown.
    pub tables: Vec<Table>,
}

/// Table with headings.
#[derive(Clone, Debug)]
pub struct Table {
    /// Headings of the columns.
    pub headings: Vec<&'static str>,
    /// Cells of each row.
    pub rows: Vec<Vec<String>>,
    /// Number of text columns on the left. The next ones are numbers; the last is text again.
    names: usize,
}

impl Table {
    /// Creates a table. The first `names` columns and the last one are text, those between them are
    /// numbers.
    #[must_use]
    pub fn new(headings: &[&'static str], names: usize, rows: Vec<Vec<String>>) -> Self {
        Self { headings: headings.to_vec(), rows, names }
    }

    /// Returns the width of each column in characters.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> =
            self.headings.iter().map(|text| text.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// Returns true if a column contains numbers, which are aligned to the right.
    pub(crate) fn is_number(&self, column: usize) -> bool {
        column >= self.names && column + 1 < self.headings.len()
    }

    /// Returns the headings as cells.
    pub(crate) fn heading_cells(&self) -> Vec<String> {
        self.headings.iter().map(|heading| (*heading).to_owned()).collect()
    }
}

/// Returns a page as text, followed by an empty line.
#[must_use]
pub fn plain(page: &Page) -> String {
    let mut text = page.title.clone();
    text.push('\n');
    for table in page.tables.iter().filter(|table| !table.rows.is_empty()) {
        let widths = table.widths();
        for row in [&table.heading_cells()].into_iter().chain(&table.rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match table.is_number(column) {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text.push('\n');
    text
}
