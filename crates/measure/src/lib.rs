//! The measurement method of Fastlane: contenders in alternating slices, ratios with their
//! intervals, a description of the machine, charts, and the [`benchmark`] of a network function.
//! All modules but the last depend on neither packets nor the framework.

#![forbid(unsafe_code)]

pub mod benchmark;
pub mod chart;
pub mod machine;
pub mod program;
pub mod slices;
pub mod statistics;
pub mod svg;

/// Error that ends a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;
