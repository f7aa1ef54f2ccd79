//! Benchmarks: the cost of the framework against the same loop written by hand.
//!
//! Contenders run in alternating slices of one run. The result is CPU time per packet, as a ratio
//! or a difference with its interval. The rivals are written in C and use no type of the framework.
//!
//! [`loops`] and [`device`] have what is measured, `scenarios` the measurements. Without the
//! feature `scenarios` only the loops are built whose instructions `bin/instructions.rs` counts.

#![deny(unsafe_code)]
// The scenarios use all of the devices, loops and rivals.
#![cfg_attr(not(feature = "scenarios"), allow(dead_code, unused_imports))]

pub mod device;
pub mod instruction_counts;
pub mod loops;
#[cfg(feature = "scenarios")]
pub mod report;
pub mod rivals;
#[cfg(feature = "scenarios")]
pub mod scenarios;

pub use fastlane_measure::{Error, Result, slices, statistics};
