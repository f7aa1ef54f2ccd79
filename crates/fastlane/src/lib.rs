//! Fastlane: a framework for network fast paths. The packet code is written once; one word of the
//! configuration selects the driver (AF_XDP, DPDK, memif, ...).
//!
//! ```no_run
//! use fastlane::{Packet, Verdict, wire::Ethernet};
//!
//! fn macswap(packet: &mut Packet) -> Verdict {
//!     let Some(ethernet) = packet.header::<Ethernet>() else {
//!         return Verdict::Drop; // shorter than an Ethernet header
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
//! An application is a function of a packet, or a type with [`App::process`]. [`main`] provides the
//! command line, the configuration, the ports and the lanes. An application with a slow path
//! requests tables that it reads and lane state that it writes; the slow path's side is in
//! [`slow`].
//!
//! ```no_run
//! use fastlane::table::{HashReader, LaneState};
//! use fastlane::{App, Packet, Shape, Turn, Verdict};
//!
//! struct Firewall { blocked: HashReader<[u8; 4], u64>, hits: LaneState<1> }
//!
//! impl App for Firewall {
//!     fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
//!         for packet in packets {
//!             let source: Option<[u8; 4]> =
//!                 packet.bytes().get(26..30).and_then(|it| it.try_into().ok());
//!             let found = source.and_then(|source| self.blocked.get(turn, &source));
//!             if let Some(found) = found {
//!                 self.hits.at(found.entry).add(0, 1);
//!             }
//!             packet.set_verdict(if found.is_some() { Verdict::Drop } else { Verdict::Kernel });
//!         }
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     fastlane::main(|lane| {
//!         let hits = lane.state("blocked", Shape::PerLane)?;
//!         Ok(Firewall { blocked: lane.hash("blocked")?, hits })
//!     })
//! }
//! ```

#![forbid(unsafe_code)]

mod app_service;
pub mod capture;
mod check;
pub mod config;
pub mod describe;
mod entry;
mod error;
mod handover;
mod info;
mod message_rings;
pub mod metrics;
pub mod mirror;
mod numa;
mod open;
mod program;
mod reshard;
mod rule_reload;
mod run;
mod service_manager;
pub mod session;
pub mod slow;
mod summary;
mod tables;
mod threads;

pub use check::{Report, check};
pub use entry::{log, main, main_from};
pub use error::Error;
pub use fastlane_core::{App, HoldKey, Packet, Partial, PortId, RawVerdict, Turn, Verdict, now};
pub use fastlane_dpdk::installed as installed_dpdk;
pub use fastlane_kernel as kernel;
pub use fastlane_table as table;
pub use fastlane_table::counters;
pub use fastlane_table::messages::{Message, PUNT, Punted};
pub use fastlane_wire as wire;
pub use info::{LaneInfo, Shape};
pub use program::{LoadedConfig, Program};
