//! Benchmarks: what the framework costs against the same loop written by hand.
//!
//! Contenders run in alternating slices of one run; what counts is CPU time per packet, as a ratio
//! or a difference with its interval. The rivals are written in C without a type of the framework.

#![deny(unsafe_code)]

pub mod application;
pub mod by_hand;
pub mod c_app;
pub mod chart;
pub mod dpdk;
pub mod eal;
pub mod echo;
mod ffi;
pub mod figure;
pub mod idle;
pub mod instructions;
pub mod lanes;
pub mod load;
pub mod lookup;
pub mod markdown;
pub mod mechanisms;
pub mod memif;
pub mod memory;
pub mod plot;
pub mod report;
pub mod round_trip;
pub mod router;
pub mod running;
pub mod runs;
pub mod subscriber;
pub mod testpmd;
pub mod upf;
pub mod veth;

pub use fastlane_measure::{Error, Result, slices, statistics};
