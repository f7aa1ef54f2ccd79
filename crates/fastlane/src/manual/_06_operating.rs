//! Operating: command line, exit statuses, tools and restarts.
//!
//! # Command line
//! Every application that calls [`main`](crate::main) accepts the same arguments:
//!
//! ```sh
//! app app.json                                        # runs until SIGTERM or SIGINT
//! app --check app.json                                # prints the meaning, changes nothing
//! app app.json --set ports.wire.driver=af-packet      # replaces one value for this run
//! app --schema                                        # prints the JSON schema
//! ```
//!
//! | exit status | meaning |
//! |---|---|
//! | 0 | ended on request |
//! | 2 | wrong command line |
//! | 3 | wrong configuration; the message names line, column and the nearest valid key |
//! | 4 | the machine or the application refuses; the message names the remedy |
//! | 5 | an interface is not back, frames are missing, or a second SIGTERM ended the run |
//! | SIGABRT | a thread panicked |
//!
//! [`Program`](crate::Program) adds settings of the application to the schema and derives defaults
//! from them, such as capacities of tables.
//!
//! # Tools
//! | command | effect |
//! |---|---|
//! | `fastlane doctor` | shows what this machine supports and what is missing |
//! | `fastlane top NAME` | shows rates, drops by reason and CPU of each lane |
//! | `fastlane capture NAME` | writes packets with their verdicts as pcapng |
//! | `fastlane tables NAME` | shows tables, their fill and their writers |
//! | `fastlane reload NAME` | replaces the steering rules while packets flow |
//! | `fastlane switch NAME PORT DRIVER` | moves a port to another driver while packets flow |
//! | `fastlane keep NAME` | holds tables, sockets and frames while the fast path restarts |
//!
//! `top` and `tables` read shared memory, so lanes do not notice them. During a `capture` the lanes
//! filter and copy. `fastlane --help` lists the other commands. A program reads the same counters:
//!
//! ```no_run
//! use fastlane::counters::LaneCounter;
//!
//! # fn main() -> Result<(), fastlane::slow::SlowError> {
//! let slow = fastlane::slow::attach("firewall")?;
//! for lane in 0..slow.counters().lanes() {
//!     let counters = slow.counters().lane(lane);
//!     println!("lane {lane}: {} held packets", counters.load(LaneCounter::HeldPackets));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `"metrics": { "listen": "127.0.0.1:9464" }` starts a Prometheus endpoint
//! ([`metrics`](crate::metrics)).
//!
//! # Missing packets
//! Each dropped packet has a counter that names the reason. `drop_transmit_full` means that the
//! peer is too slow, `drop_device_full` that the lane is. `fastlane capture NAME --verdict drop`
//! shows the packets that the application dropped, and `--direction out` also those that an exit
//! refused, with the reason as a comment. Frames that no rule claims are in Linux: look there with
//! tcpdump.
//!
//! # Restarts
//! A slow path may be killed at any time: see [two processes](super::_02_two_processes). For hot
//! restarts of the fast path, run `fastlane keep NAME`, or a systemd unit of `Type=notify` with a
//! file descriptor store.
//!
//! More: `docs/operating.md` and `docs/systemd.md` of the repository.
