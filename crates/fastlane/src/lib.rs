//! Fastlane: write the packet code once, choose the mechanism with one word in a configuration.
//!
//! ```no_run
//! use fastlane::{Packet, Verdict, wire::Ethernet};
//!
//! fn macswap(packet: &mut Packet) -> Verdict {
//!     let Some(ethernet) = packet.header::<Ethernet>() else {
//!         return Verdict::Drop; // a runt
//!     };
//!     std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
//!     Verdict::Reflect
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     fastlane::main(|_lane| Ok(macswap))
//! }
//! ```
//!
//! An application is a function of a packet, or a type with [`App::process`]; [`main`] gives it a
//! command line, a configuration, its ports and its lanes.

#![forbid(unsafe_code)]

pub mod capture;
mod check;
pub mod config;
mod cpus;
pub mod describe;
mod entry;
mod error;
mod info;
mod kept;
mod messages;
pub mod metrics;
pub mod mirror;
mod numa;
mod open;
mod reshard;
mod run;
pub mod session;
pub mod slow;
mod steering;
mod summary;
mod tables;

pub use check::{Report, check};
pub use entry::{main, main_from};
pub use error::Error;
pub use fastlane_core::{App, HoldKey, Packet, Partial, PortId, RawVerdict, Turn, Verdict, now};
pub use fastlane_dpdk::installed as installed_dpdk;
pub use fastlane_kernel as kernel;
pub use fastlane_table as table;
pub use fastlane_table::counters;
pub use fastlane_table::messages::{Message, PUNT, Punted};
pub use fastlane_wire as wire;
pub use info::{LaneInfo, Shape};
