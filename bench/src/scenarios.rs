//! The measurements of the program. Each function adds its results to a report.

pub mod c_application;
pub mod dpdk;
pub mod figures;
pub mod firewall;
pub mod lanes;
pub mod memif;
pub mod memory;
pub mod pod;
pub mod router;
pub mod subscriber;
pub mod tables;
pub mod upf;
pub mod upf_flood;
pub mod upf_lanes;
pub mod upf_memif;
pub mod upf_nat;
pub mod upf_rules;
pub mod upf_sizes;
pub mod veth;

pub use c_application::in_c;
pub use dpdk::dpdk;
pub use figures::{cpu_by_load, mechanisms, sizes};
pub use firewall::{firewall, firewall_connections, firewall_grown, firewall_lane};
pub use lanes::lanes;
pub use memif::{memif, memif_round_trips};
pub use memory::memory;
pub use pod::pod;
pub use router::{flows, router};
pub use subscriber::subscriber;
pub use tables::{classifiers, hash, prefixes};
pub use upf::upf;
pub use upf_flood::upf_flood;
pub use upf_lanes::upf_lanes;
pub use upf_memif::upf_memif;
pub use upf_nat::upf_nat;
pub use upf_rules::upf_rules;
pub use upf_sizes::upf_sizes;
pub use veth::{af_packet, af_xdp, idle, round_trips};

use crate::slices::Effort;

/// Number of pairs, rounds and lanes of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pairs of slices.
    pub effort: Effort,
    /// Number of rounds of measurements that do not use pairs.
    pub rounds: usize,
    /// Numbers of lanes that run at once.
    pub lanes: Vec<usize>,
    /// Base-2 logarithm of the number of slots in the rings of a flooded lane.
    pub log2_ring: u8,
}

impl Options {
    /// Returns the effort for one of many points of a figure.
    fn point(&self) -> Effort {
        Effort { pairs: self.rounds, slice: self.effort.slice / 2 }
    }

    /// Prints the progress on standard error.
    fn tell(&self, what: &str, number: usize) {
        eprintln!("{what}: {} of {}", number + 1, self.effort.pairs);
    }
}
