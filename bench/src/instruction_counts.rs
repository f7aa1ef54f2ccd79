//! The committed instruction counts: the guard against a slower loop that no noise can trip.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Packets of the shorter run; the longer one has twice as many.
pub const PACKETS: u64 = 1 << 18;
/// How many times as many an application swaps, whose start takes not always the same.
const MORE: u64 = 4;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The whole loop on a memory port with bursts of this size.
    Memory(usize),
    /// An application with both ends of a memif connection: the cost of one end.
    Memif,
    /// An application on a ring of DPDK that ends where it begins.
    Dpdk,
    /// Keys of 16 bytes that are there, 32 at once; one is a packet here.
    Hash,
    /// IPv4 addresses, 32 at once.
    Lpm4,
    /// Steering in software: one of two rules for each frame, as those of `apps/upf`.
    Steering,
    /// The user plane in one direction, with what it takes to write each frame anew.
    Upf(&'static str),
}

impl Count {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Memory(32),
        Self::Memory(8),
        Self::Memory(1),
        Self::Memif,
        Self::Dpdk,
        Self::Hash,
        Self::Lpm4,
        Self::Steering,
        Self::Upf("uplink"),
        Self::Upf("downlink"),
    ];

    /// Packets of the shorter run.
    #[must_use]
    pub fn packets(self) -> u64 {
        if matches!(self, Self::Memif | Self::Dpdk) { MORE * PACKETS } else { PACKETS }
    }

    /// Its key.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Memory(burst) => format!("burst-{burst}"),
            Self::Memif => "memif-burst-32".to_owned(),
            Self::Dpdk => "dpdk-net-ring-burst-32".to_owned(),
            Self::Hash => "hash-get-many-32".to_owned(),
            Self::Lpm4 => "lpm4-lookup-many-32".to_owned(),
            Self::Steering => "steering".to_owned(),
            Self::Upf(direction) => format!("upf-{direction}-burst-32"),
        }
    }
}

/// What `bench/instructions.json` holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Committed {
    /// Packets by which the two runs differ.
    pub packets: u64,
    /// By what is counted, as [`Count::name`] names it.
    pub instructions_per_packet: BTreeMap<String, f64>,
    /// How much more is accepted, in percent: compilers differ a little.
    pub allowed_growth_percent: f64,
}

impl Default for Committed {
    fn default() -> Self {
        let none = BTreeMap::new();
        Self { packets: PACKETS, instructions_per_packet: none, allowed_growth_percent: 3.0 }
    }
}
