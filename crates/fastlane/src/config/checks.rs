//! Checks of single values, and the error of one that is not allowed.

use crate::Error;

/// Returns the error of a value that is not allowed.
pub(super) fn refuse(path: impl Into<String>, what: impl Into<String>) -> Error {
    Error::Value { path: path.into(), what: what.into(), meant: None }
}

/// Checks that a value is in a range.
pub(super) fn within(path: &str, value: usize, low: usize, high: usize) -> Result<usize, Error> {
    let inside = (low..=high).contains(&value);
    inside
        .then_some(value)
        .ok_or_else(|| refuse(path, format!("{value} is not allowed; write {low} to {high}")))
}

/// Returns the first number that occurs twice.
pub(super) fn twice(numbers: &[usize]) -> Option<usize> {
    let mut places = numbers.iter().enumerate();
    places.find(|(place, number)| numbers[..*place].contains(number)).map(|(_, number)| *number)
}
