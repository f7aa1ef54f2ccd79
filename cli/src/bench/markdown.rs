//! The report for a reader.

use super::plots::Plot;
use super::results::Results;

pub(super) fn report(_: &Results, _: &[Plot]) -> String { String::new() }
