//! Errors in a configuration, and the word that was probably meant.

use std::fmt;

/// Error in a configuration, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File, or other source of the text.
    pub place: String,
    /// Line and column, counted from 1, if known.
    pub line_and_column: Option<(usize, usize)>,
    /// Path of keys to the error, joined by dots; empty at the top level.
    pub path: String,
    /// Error and allowed values.
    pub what: String,
    /// Nearest valid key or word.
    pub meant: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.place)?;
        if let Some((line, column)) = self.line_and_column {
            write!(formatter, ":{line}:{column}")?;
        }
        formatter.write_str(": ")?;
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.what)?;
        match &self.meant {
            Some(meant) => write!(formatter, "; did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

/// Returns the word nearest to `given`, if one is similar.
#[must_use]
pub fn nearest_word<'a>(given: &str, words: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let score = |word: &str| strsim::jaro_winkler(given, word);
    let best = words.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(best) >= 0.75).then(|| best.to_owned())
}
