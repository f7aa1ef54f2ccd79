//! The cost of lookups in the tables of Fastlane, of DPDK and of crates.
//!
//! Each contender is a separate single-threaded program. It runs on request from its standard input
//! and reports its CPU time. All programs read the same file of entries and queries, and the
//! results of a pass over the queries must be equal.

#[cfg(feature = "scenarios")]
mod bit_vectors;
#[cfg(feature = "scenarios")]
mod classifiers;
#[cfg(feature = "scenarios")]
mod comparison;
pub mod counted_lookups;
#[cfg(feature = "scenarios")]
mod crate_tables;
#[cfg(feature = "scenarios")]
mod fastlane_tables;
#[cfg(feature = "scenarios")]
pub mod rule_sets;
#[cfg(feature = "scenarios")]
mod server;
#[cfg(feature = "scenarios")]
mod subprocess;
#[cfg(feature = "scenarios")]
mod tuple_space;
pub mod workload;

#[cfg(feature = "scenarios")]
pub use comparison::{ContenderResult, Setting, compare, serve};
#[cfg(feature = "scenarios")]
pub use subprocess::{LOOKUPS, Pages, Programs, TableContender};

/// Number of lookups in one bulk.
pub const BULK: usize = 32;
