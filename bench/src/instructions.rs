//! The committed instruction counts: the guard against a slower loop that no noise can trip.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The burst sizes that are counted.
pub const BURSTS: [usize; 3] = [32, 8, 1];
/// Packets of the shorter run; the longer one has twice as many.
pub const PACKETS: u64 = 1 << 18;

/// What `bench/instructions.json` holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Committed {
    /// Packets by which the two runs differ.
    pub packets: u64,
    /// By burst size, as [`name`] names it.
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

/// The key of a burst size.
#[must_use]
pub fn name(burst: usize) -> String {
    format!("burst-{burst}")
}
