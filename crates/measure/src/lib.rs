//! How Fastlane measures: contenders in alternating slices, ratios with their intervals, the
//! machine that they are of, and charts. It knows nothing of packets or of the framework.

#![forbid(unsafe_code)]

pub mod chart;
pub mod machine;
pub mod program;
pub mod slices;
pub mod statistics;
pub mod svg;

/// An error in a few words; a measurement ends at the first.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// What a measurement gives.
pub type Result<T> = std::result::Result<T, Error>;
