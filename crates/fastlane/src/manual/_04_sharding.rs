//! Sharding: several lanes, without a lock.
//!
//! # Lanes
//! `"lanes": { "cpus": [0, 1] }` starts a lane on each of these CPUs. A lane is a thread with its
//! own queues of each port, application instance, frame pool and counters. Without another setting
//! the device's RSS selects the lane of a packet.
//!
//! # Keys
//! State of a flow or user is simplest in a plain variable of one lane. Then all packets of that
//! key must reach the same lane, in both directions and whatever RSS decides. `lane-by` of a port
//! selects the key:
//!
//! | `lane-by` | key |
//! |---|---|
//! | `"rss"` | none: the lane of arrival |
//! | `"flow"` | addresses, protocol and ports; equal for both directions |
//! | `{ "key": { "field": "gtp-teid" } }` | the TEID of GTP-U |
//! | `{ "key": { "field": "source-address" } }` | an IP address; also `destination-address` |
//! | `{ "key": { "field": { "bytes": { "offset": 34, "length": 2 } } } }` | bytes of the frame |
//! | `"application"` | the result of [`App::shard`](crate::App::shard) |
//!
//! A key belongs to one of 256 shards, and each shard to a lane. The lane of arrival passes a
//! packet of another lane's shard on, through a ring. That costs one copy. Packets of one queue and
//! one key stay in order.
//!
//! IP fragments go to Linux if the key is not in each of them, as ports and TEIDs are not, and with
//! `bytes`. With an address or `application` they stay.
//!
//! # Keys of the application
//! The result must depend only on the packet and on tables, because any lane may be the lane of
//! arrival:
//!
//! ```no_run
//! use fastlane::table::HashReader;
//! use fastlane::wire::Layers;
//! use fastlane::{App, Packet, Turn, Verdict};
//!
//! /// Users, and the shard of each.
//! struct Users {
//!     shards: HashReader<[u8; 4], u64>,
//! }
//!
//! impl App for Users {
//!     fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
//!         // All packets of a user are shown to this instance.
//!         packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Reflect));
//!     }
//!
//!     fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
//!         let Ok(layers) = Layers::parse(packet.bytes()) else { return 0 };
//!         let Some(ipv4) = layers.ipv4(packet.bytes()) else { return 0 };
//!         self.shards.get(turn, &ipv4.source).map_or(0, |user| *user.value as u8)
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     fastlane::main(|lane| Ok(Users { shards: lane.hash("users")? }))
//! }
//! ```
//!
//! [`Turn::owns`](crate::Turn::owns) tells whether a shard is this lane's, for work that no packet
//! starts, such as timers.
//!
//! # Workers
//! `"model": { "master-worker": { "io": [0] } }` under `lanes` divides the lanes. Those of `io`
//! have the ports and no application. The others are workers: they have the application and no
//! ports. It suits a device with fewer queues than CPUs, and applications with much work for each
//! packet. `lane-by` is `flow` there unless it is a `key`; `rss` and `application` are refused.
//!
//! # Moving shards
//! `fastlane shards NAME` shows the shards and packets of each lane. `--move 7=0` moves shard 7 to
//! lane 0 while packets flow: they wait, in order, until the old lane has processed what it has.
//! State in plain variables stays behind in the old instance. State that must move belongs in
//! tables and lane state.
//!
//! Whole program: `examples/sharding.rs`.
