//! Packet generator, sink and latency meter. It measures the other applications and is an
//! application itself.
//!
//! A [`Run`](run::Run) makes a [`Traffic`](app::Traffic) for each lane. Its
//! [`Generator`](generator::Generator) copies prepared headers into new packets and adds a
//! [`Mark`](payload::Mark) with run, flow, sequence number and time. Its [`Sink`](sink::Sink) reads
//! the marks of received frames. A [`Report`](report::Report) sums up all frames.

#![forbid(unsafe_code)]

mod addresses;
mod answers;
pub mod app;
pub mod generator;
pub mod pace;
pub mod payload;
pub mod plan;
pub mod progress;
pub mod report;
pub mod run;
mod run_context;
pub mod settings;
pub mod sink;
mod table;
pub mod tally;
mod trial;
pub mod trials;
pub mod window;

use fastlane::wire;
