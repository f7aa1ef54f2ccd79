//! Benchmarks: the cost of the framework against the same loop written by hand.
//!
//! Contenders run in alternating slices of one run. The result is CPU time per packet, as a ratio
//! or a difference with its interval. The rivals are written in C and use no type of the framework.

#![deny(unsafe_code)]

pub mod device;
pub mod instruction_counts;
pub mod report;
pub mod rivals;
pub mod scenarios;

pub use fastlane_measure::{Error, Result, slices, statistics};
