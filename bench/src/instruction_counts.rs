//! The committed instruction counts: a guard against a slower loop that does not depend on noise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of packets of the shorter run; the longer one has twice as many.
pub const PACKETS: u64 = 1 << 16;
/// Factor of packets for applications, whose start varies more.
const MORE: u64 = 16;

/// Loop whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The whole loop on a memory port with bursts of this size.
    Memory(usize),
    /// Application with both ends of a memif connection. The count is the cost of one end.
    Memif,
    /// Application on a DPDK ring that loops packets back.
    Dpdk,
    /// Lookup of existing 16-byte keys, 32 at once. One lookup counts as a packet.
    Hash,
    /// Lookup of IPv4 addresses, 32 at once.
    Lpm4,
    /// Steering in software: one of the two rules of `apps/upf` for each frame.
    Steering,
    /// Flows with NAT, including the cost of writing headers anew.
    Flows,
    /// The user plane in one direction, including the cost of writing each frame anew.
    Upf(&'static str),
    /// The same with this many PDRs: 8 of 4 filters each, or 16 of 8.
    UpfFilters(u8, &'static str),
    /// The same with 2 PDRs and NAT on N6.
    UpfNat(&'static str),
}

impl Count {
    /// All counted loops.
    pub const ALL: [Self; 17] = [
        Self::Memory(32),
        Self::Memory(8),
        Self::Memory(1),
        Self::Memif,
        Self::Dpdk,
        Self::Hash,
        Self::Lpm4,
        Self::Steering,
        Self::Flows,
        Self::Upf("uplink"),
        Self::Upf("downlink"),
        Self::UpfFilters(8, "uplink"),
        Self::UpfFilters(8, "downlink"),
        Self::UpfFilters(16, "uplink"),
        Self::UpfFilters(16, "downlink"),
        Self::UpfNat("uplink"),
        Self::UpfNat("downlink"),
    ];

    /// Returns the number of packets of the shorter run.
    #[must_use]
    pub fn packets(self) -> u64 {
        if matches!(self, Self::Memif | Self::Dpdk) { MORE * PACKETS } else { PACKETS }
    }

    /// Returns the key in the committed file.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Memory(burst) => format!("burst-{burst}"),
            Self::Memif => "memif-burst-32".to_owned(),
            Self::Dpdk => "dpdk-net-ring-burst-32".to_owned(),
            Self::Hash => "hash-get-many-32".to_owned(),
            Self::Lpm4 => "lpm4-lookup-many-32".to_owned(),
            Self::Steering => "steering".to_owned(),
            Self::Flows => "router-flows-burst-32".to_owned(),
            Self::Upf(direction) => format!("upf-{direction}-burst-32"),
            Self::UpfFilters(pdrs, direction) => format!("upf-{pdrs}-pdrs-{direction}-burst-32"),
            Self::UpfNat(direction) => format!("upf-nat-{direction}-burst-32"),
        }
    }
}

/// Contents of `bench/instructions.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Committed {
    /// Difference in packets between the two runs.
    pub packets: u64,
    /// Instructions per packet by [`Count::name`].
    pub instructions_per_packet: BTreeMap<String, f64>,
    /// Accepted growth in percent, because compilers differ slightly.
    pub allowed_growth_percent: f64,
    /// Instructions per packet that are never exceeded, whatever is committed.
    #[serde(default)]
    pub at_most: BTreeMap<String, f64>,
}

impl Default for Committed {
    fn default() -> Self {
        let none = BTreeMap::new();
        Self {
            packets: PACKETS,
            instructions_per_packet: none,
            allowed_growth_percent: 3.0,
            at_most: BTreeMap::new(),
        }
    }
}
