//! Kernel tier of flows: a program in the kernel forwards packets of established connections, with
//! NAT, before Linux routes them. No lane and no CPU of its own is needed. It is an XDP program,
//! or, where packets are socket buffers of Linux already, one at the ingress of the interface.
//!
//! The slow path is that of the lanes: a [`FlowFollower`](fastlane_mirror::flows::FlowFollower)
//! writes the same flows to the tables of a [`KernelTier`], which is a
//! [`FlowTier`](fastlane_mirror::flows::FlowTier). The program in `bpf/flows.bpf.c` translates and
//! redirects the packets that it finds there; all others go to Linux unchanged. A [`TierReader`]
//! reads counters by the pins, for tools.
//!
//! ```text
//! flows      entry ─► FlowKey, FlowRecord, serial number, check; IPv4 in one cache line
//! places     slots of a hash table, two in a word: entry, and bits of the hash
//! homes      a bit for each slot that the hash of some flow names
//! states     entry ─► counters, last packet, closing, remembered next hop; one for each CPU
//! status     time until which flows may be forwarded; generation of the remembered hops
//! entrances  slots of a hash table: interface, Ethernet address, zone, check
//! exits      interface (devmap)
//! route_mtus IPv4 prefix ─► least MTU of its routes (trie)
//! lanes      programs that steer to lanes, of interfaces of both tiers
//! outcomes   packets and bytes by CPU and TierOutcome
//! ```
//!
//! Invariants: a packet that is not forwarded is unchanged. Without a heartbeat of the slow path
//! everything goes to Linux after the grace time. Links and tables are pinned: the program runs on
//! while the slow path is replaced, and its successor adopts them. The program of another version
//! is exchanged, with the same tables.

#![forbid(unsafe_code)]

mod beside_lanes;
mod encoding;
mod entrances;
mod error;
mod homes;
mod kernel_tier;
mod pins;
mod program;
mod route_mtu_table;
mod shared_tier;
mod slots;
mod tables;
mod tables_reader;
mod test_run;
mod tier_outcome;
mod tier_port;
mod tier_programs;
mod tier_reader;

pub use error::TierError;
pub use fastlane_steer::XdpMode;
pub use kernel_tier::{Adoption, KernelTier};
pub use shared_tier::SharedTier;
pub use test_run::{Segments, TestRun};
pub use tier_outcome::{OutcomeCount, TierOutcome};
pub use tier_port::{InterfaceKind, TierHook, TierPort};
pub use tier_reader::TierReader;
