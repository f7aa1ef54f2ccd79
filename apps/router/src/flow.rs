//! Flow hash, which selects among several next hops.

use std::hash::{BuildHasher, RandomState};

use crate::family::Family;
use crate::headers::Headers;

/// Keyed hash of addresses, protocol and ports. The keys are random: a sender cannot direct all
/// flows to one next hop, and consecutive routers choose independently.
#[derive(Clone, Copy, Debug)]
pub struct FlowHash([u64; 2]);

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

impl FlowHash {
    /// Creates a hash with random keys of this process.
    #[must_use]
    pub fn random() -> Self {
        let state = RandomState::new();
        Self([state.hash_one(1), state.hash_one(2)])
    }

    /// Returns the hash of a packet's flow. Fragments show no ports and hash without them.
    #[inline(always)]
    #[must_use]
    pub(crate) fn of<A: Family>(&self, headers: &Headers<A>) -> u32 {
        let (from, to) = (headers.source.bits(), headers.destination.bits());
        let [source, destination] = headers.ports;
        let ports = u64::from(source) << 32 | u64::from(destination) << 16;
        let upper = fold(self.0[0] ^ (from >> 64) as u64, self.0[1] ^ (to >> 64) as u64);
        let lower = fold(upper ^ from as u64, self.0[1] ^ to as u64);
        (fold(lower ^ ports ^ u64::from(headers.protocol), ODD) >> 32) as u32
    }
}

#[inline(always)]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}
