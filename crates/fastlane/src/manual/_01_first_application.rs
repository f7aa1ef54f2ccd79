//! First application: a program, its configuration and its test.
//!
//! # The program
//! An application labels packets. The smallest one is a function from a packet to a
//! [`Verdict`](crate::Verdict):
//!
//! ```no_run
//! use fastlane::{Packet, Verdict, wire::Layers};
//!
//! /// Drops UDP to port 9 (discard) and leaves all else to Linux.
//! fn discard(packet: &mut Packet) -> Verdict {
//!     let Ok(layers) = Layers::parse(packet.bytes()) else { return Verdict::Kernel };
//!     match layers.udp(packet.bytes()) {
//!         Some(udp) if udp.destination_port.get() == 9 => Verdict::Drop,
//!         _ => Verdict::Kernel,
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     fastlane::main(|_lane| Ok(discard))
//! }
//! ```
//!
//! | verdict | effect |
//! |---|---|
//! | `Kernel` (default) | Linux gets the packet (below) |
//! | `Drop` | the frame returns to the pool |
//! | `Reflect` | the packet leaves by the port on which it arrived |
//! | `Forward(port)` | it leaves by another port of the lane |
//! | `Hold(key)` | the lane keeps it until [`Turn::resume`](crate::Turn::resume), if it has room |
//!
//! On af-xdp and af-packet, Linux gets a packet labelled `Kernel` as if it had just arrived on the
//! interface. A VLAN port has the path of its carrier. On other drivers the port needs
//! `"kernel": {"tap": {}}`: without it the packet is dropped and counted as `drop_no_kernel_peer`.
//!
//! The closure passed to [`main`](crate::main) is the factory. It runs once for each lane (with
//! workers, for each of them), before any port is open, and creates the instance of that lane. No
//! other thread uses the instance, so its fields need no lock.
//!
//! # The configuration
//! ```json
//! {
//!   "ports": {
//!     "wire": {
//!       "driver": { "af-xdp": { "interface": "eth0" } },
//!       "steer": [ { "udp-port": 9 } ]
//!     }
//!   }
//! }
//! ```
//! `steer` selects the packets that the application sees; Linux keeps all others. Without `steer`
//! the application gets every frame of the port, also those of your ssh session. The program
//! checks a configuration with `--check`, and changes one value for a trial with `--set`:
//!
//! ```sh
//! discard --check discard.json
//! discard discard.json --set ports.wire.driver=af-packet
//! ```
//!
//! # Bursts, time and settings
//! A type that implements [`App`](crate::App) sees whole bursts and a [`Turn`](crate::Turn): the
//! time, timers, messages, held packets and packets of its own. Its settings are the object `app`
//! of the configuration, which it reads with `serde` (feature `derive`), a dependency of its own:
//!
//! ```no_run
//! use fastlane::{App, Packet, PortId, Turn, Verdict};
//!
//! #[derive(serde::Deserialize)]
//! struct Settings {
//!     longest: usize,
//! }
//!
//! /// Forwards packets up to a length.
//! struct LengthFilter {
//!     longest: usize,
//!     exit: PortId,
//! }
//!
//! impl App for LengthFilter {
//!     fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
//!         for packet in packets {
//!             let fits = packet.len() <= self.longest;
//!             packet.set_verdict(if fits { Verdict::Forward(self.exit) } else { Verdict::Drop });
//!         }
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     fastlane::main(|lane| {
//!         let settings: Settings = lane.settings()?;
//!         Ok(LengthFilter { longest: settings.longest, exit: lane.require_port("exit")? })
//!     })
//! }
//! ```
//!
//! `process` and `turn` must not block, and should not allocate: all packets of the lane wait
//! meanwhile.
//!
//! # The test
//! A lane over lists of frames needs no device, no privilege and no thread. Dev-dependencies:
//! `fastlane-core` and `fastlane-testing`.
//!
//! ```
//! use fastlane::counters::Counters;
//! use fastlane::table::SharedMemory;
//! use fastlane::{Packet, PortId, Verdict};
//! use fastlane_core::{Lane, LaneConfig, Pool, Port};
//! use fastlane_testing::lists::{Frames, lists};
//!
//! fn application(packet: &mut Packet) -> Verdict {
//!     if packet.len() < 60 { Verdict::Drop } else { Verdict::Reflect }
//! }
//!
//! let (received, sent) = (Frames::default(), Frames::default());
//! let counters = Counters::create(1, 1)?; // one lane, one port
//! let pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
//! let port = Port {
//!     queues: vec![lists(PortId(0), &received, &sent)],
//!     kernel: None,
//!     filter: None,
//!     counters: counters.port(0, 0),
//! };
//! let mut lane = Lane::new(application, LaneConfig::new(pool, vec![port], counters.lane(0)));
//!
//! received.extend(&[vec![1; 60], vec![2; 20]]);
//! lane.turn();
//! assert_eq!(sent.take(), [vec![1; 60]]);
//! assert_eq!(lane.close(), 0, "every frame is back in the pool");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whole programs: `examples/macswap.rs`, `examples/timers.rs` (timers and own packets),
//! `examples/hold.rs` (`Hold` and resume).
