//! Counters of a router.

use std::net::{IpAddr, Ipv6Addr};

use fastlane::table::{EntryId, LaneState};

/// Words of an entry of `causes` and of `acl`: packets, and bytes from the Ethernet header on.
pub const CAUSE_WORDS: usize = 2;
/// Words of an entry of `routes`: packets, bytes, and the last destination in two words, with IPv4
/// addresses mapped into IPv6 (RFC 4291, 2.5.5.2).
pub const ROUTE_WORDS: usize = 4;

/// Packet and byte counters: `causes` by [`Outcome`](crate::Outcome), `routes` by route number.
#[derive(Clone, Debug)]
pub struct Counts {
    causes: LaneState<CAUSE_WORDS>,
    routes: Option<LaneState<ROUTE_WORDS>>,
}

impl Counts {
    /// Creates the counters in lane state; without `routes`, routes are not counted.
    #[must_use]
    pub fn new(causes: LaneState<CAUSE_WORDS>, routes: Option<LaneState<ROUTE_WORDS>>) -> Self {
        Self { causes, routes }
    }

    #[inline]
    pub(crate) fn cause(&self, number: u32, packets: u64, octets: u64) {
        add(&self.causes, number, packets, octets);
    }

    #[inline]
    pub(crate) fn route(&self, number: u32, octets: u64, to: impl Into<IpAddr>) {
        let Some(routes) = &self.routes else { return };
        let to: Ipv6Addr = match to.into() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let words = routes.at(EntryId(number));
        words.add(0, 1);
        words.add(1, octets);
        words.set(2, (to.to_bits() >> 64) as u64);
        words.set(3, to.to_bits() as u64);
    }
}

#[inline]
pub(crate) fn add(state: &LaneState<CAUSE_WORDS>, entry: u32, packets: u64, octets: u64) {
    let words = state.at(EntryId(entry));
    words.add(0, packets);
    words.add(1, octets);
}
