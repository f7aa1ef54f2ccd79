//! A generator, a sink and a latency meter for packets: the instrument that measures the other
//! applications, and itself an application.
//!
//! A [`Run`](run::Run) makes a [`Traffic`](app::Traffic) for each lane. Its
//! [`Generator`](generator::Generator) copies prepared headers into new packets and adds a
//! [`Mark`](payload::Mark) that says run, flow, number and time; its [`Sink`](sink::Sink) reads the
//! marks of what comes back. A [`Report`](report::Report) says what became of all frames.

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
pub mod settings;
pub mod sink;
mod table;
pub mod tally;
mod trial;
pub mod trials;
pub mod window;

use fastlane::wire;
