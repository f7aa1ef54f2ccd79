//! Fastlane: a framework for network fast paths. The packet code is written once; one word of the
//! configuration selects the driver (AF_XDP, DPDK, memif, ...). Traffic that no rule of a port
//! claims stays in Linux; a port without rules claims all.
//!
//! # First application
//! An application is a function from a packet to a verdict:
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
//! [`main`] provides the command line, the configuration, the ports and the lanes. The
//! configuration names the ports:
//!
//! ```json
//! {
//!   "ports": {
//!     "wire": {
//!       "driver": { "af-xdp": { "interface": "eth0" } },
//!       "steer": [ { "udp-port": 2152 } ]
//!     }
//!   }
//! }
//! ```
//!
//! # Fast path and slow path
//! A type that implements [`App`] gets whole bursts, timers, messages and packets of its own
//! ([`Turn`]). It requests tables that it reads and lane state that it writes ([`LaneInfo`]). The
//! slow path is another program, or a thread of this one: it writes the tables and reads the state
//! ([`slow`]).
//!
//! ```no_run
//! use fastlane::table::{HashReader, LaneState};
//! use fastlane::wire::Layers;
//! use fastlane::{App, Packet, Shape, Turn, Verdict};
//!
//! struct Firewall {
//!     blocked: HashReader<[u8; 4], u64>,
//!     hits: LaneState<1>,
//! }
//!
//! impl App for Firewall {
//!     fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
//!         for packet in packets {
//!             let source = Layers::parse(packet.bytes())
//!                 .ok()
//!                 .and_then(|layers| layers.ipv4(packet.bytes()).map(|ipv4| ipv4.source));
//!             let blocked = source.and_then(|source| self.blocked.get(turn, &source));
//!             if let Some(blocked) = blocked {
//!                 self.hits.at(blocked.entry).add(0, 1);
//!             }
//!             packet.set_verdict(if blocked.is_some() { Verdict::Drop } else { Verdict::Kernel });
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
//!
//! # Further reading
//! * The [`manual`], chapter by chapter: two processes, tables, sharding, drivers, operation.
//! * Whole programs with tests: the folder `examples` of this crate.
//! * Headers of packets: [`wire`]. Tables: [`table`]. Configuration keys: [`config`].
//!
//! # Invariants
//! A lane never waits for the slow path. An application can neither keep nor lose a frame. Each
//! dropped packet increments a counter that names the reason.

#![deny(unsafe_code)]

pub mod agent;
mod app_service;
pub mod capture;
#[cfg(test)]
mod captured_log;
mod check;
pub mod config;
pub mod describe;
mod diagnostic;
mod entry;
mod error;
mod handover;
mod info;
mod lane_memory;
pub mod manual;
mod memory_limit;
mod message_rings;
pub mod metrics;
pub mod mirror;
mod numa;
mod open;
mod port_monitor;
mod port_switch;
mod privileges;
mod program;
mod reshard;
mod rule_reload;
mod run;
mod service_manager;
pub mod session;
mod session_path;
pub mod slow;
mod summary;
mod table_readers;
mod tables;
mod threads;
mod write_lock;

pub use check::{Report, check};
pub use entry::{abort_on_panic, log, main, main_from};
pub use error::Error;
pub use fastlane_core::{App, HoldKey, Packet, Partial, PortId, RawVerdict, Turn, Verdict, now};
pub use fastlane_dpdk::installed as installed_dpdk;
pub use fastlane_flow_tier as flow_tier;
pub use fastlane_kernel as kernel;
pub use fastlane_table as table;
pub use fastlane_table::counters;
pub use fastlane_table::messages::{Message, PUNT, Punted};
pub use fastlane_wire as wire;
pub use info::{LaneInfo, Shape};
pub use program::{LoadedConfig, Program};
