//! Packet classification: the first of many rules that match a packet.
//!
//! A rule ([`FlowMatch`]) names prefixes, ports, protocols and tags. A list of rules is in order of
//! priority: the first one that matches decides. The writer compiles each list as a whole and
//! publishes it by one store; lanes read the old list or the new one.
//!
//! ```text
//! page 0   header; groups is the size of an area in units of 1 KiB
//! index    one u64: 0, or 1 + number of the current area
//! data     two areas, each for one generation of the list
//! ```
//! A generation consists of a header (`generation.rs`), the application's own form of the list
//! (bytes), and for each address family the values of the rules and three structures:
//!
//! * **Intervals** (`intervals.rs`). The edges of all rules divide a field into intervals. A search
//!   in them turns a field of a packet into a number of 16 bits, so what follows is the same for
//!   IPv4 and IPv6.
//! * **Cuts** (`cuts.rs`). One or more decision trees over the numbers of intervals. An inner entry
//!   cuts one field into equal parts; a leaf names blocks of rules.
//! * **Blocks** (`block.rs`). 16 rules of a leaf, compared at once by vector instructions.
//!
//! # Invariants
//! * A published generation does not change. Its area is written again only after a grace period.
//! * Readers check every number that they follow: whatever the memory holds, a lookup ends and
//!   stays inside it.
//! * The work of a lookup is bounded: a list that would need more is refused.

use crate::{Address, Prefix};

mod block;
mod classifier_reader;
mod classifier_writer;
mod cuts;
mod flow_address;
mod generation;
mod instructions;
mod intervals;
mod packet_burst;
mod partition;

pub use classifier_reader::{ClassifierReader, CurrentRules};
pub use classifier_writer::{ClassifierWriter, RuleList};
pub use cuts::Statistics;
pub use flow_address::FlowAddress;

/// Number of fields of a flow.
pub(crate) const FIELDS: usize = 6;
/// Maximum number of packets that are looked up together.
pub(crate) const BURST: usize = 32;

/// Fields of a packet that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Source port, or 0.
    pub source_port: u16,
    /// Destination port, or 0.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Any further property of the packet, as the application defines it: an ingress port, a DSCP,
    /// flags.
    pub tag: u8,
}

/// Condition of a rule. Ranges are pairs of the first and the last value.
///
/// # Examples
/// ```
/// use std::net::Ipv4Addr;
///
/// use fastlane_table::{FlowKey, FlowMatch, Prefix};
///
/// let dns = FlowMatch {
///     destination: Prefix::new(Ipv4Addr::new(192, 0, 2, 0), 24).expect("24 bits"),
///     destination_ports: [53, 53],
///     protocols: [17, 17],
///     ..FlowMatch::any()
/// };
/// let query = FlowKey {
///     source: Ipv4Addr::new(10, 0, 0, 1),
///     destination: Ipv4Addr::new(192, 0, 2, 9),
///     source_port: 40_000,
///     destination_port: 53,
///     protocol: 17,
///     tag: 0,
/// };
/// assert!(dns.matches(&query));
/// assert!(!dns.matches(&FlowKey { protocol: 6, ..query }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowMatch<A> {
    /// Source prefix.
    pub source: Prefix<A>,
    /// Destination prefix.
    pub destination: Prefix<A>,
    /// Range of source ports.
    pub source_ports: [u16; 2],
    /// Range of destination ports.
    pub destination_ports: [u16; 2],
    /// Range of protocols.
    pub protocols: [u8; 2],
    /// Range of tags.
    pub tags: [u8; 2],
}

impl<A: Address> FlowMatch<A> {
    /// Returns the condition that every packet of the family fulfils.
    #[must_use]
    pub fn any() -> Self {
        let prefix = Prefix::new(A::from_bits(0), 0).expect("no address is shorter than 0 bits");
        Self {
            source: prefix,
            destination: prefix,
            source_ports: [0, u16::MAX],
            destination_ports: [0, u16::MAX],
            protocols: [0, u8::MAX],
            tags: [0, u8::MAX],
        }
    }

    /// Returns true if a packet fulfils the condition. A range whose first value is greater than
    /// its last one contains nothing.
    #[must_use]
    pub fn matches(&self, key: &FlowKey<A>) -> bool {
        let within = |[first, last]: [u16; 2], value: u16| first <= value && value <= last;
        let wide = |range: [u8; 2]| range.map(u16::from);
        self.source.contains(key.source)
            && self.destination.contains(key.destination)
            && within(self.source_ports, key.source_port)
            && within(self.destination_ports, key.destination_port)
            && within(wide(self.protocols), key.protocol.into())
            && within(wide(self.tags), key.tag.into())
    }

    /// Returns the ranges of the fields, in the order of [`FlowKey`].
    pub(crate) fn ranges(&self) -> [[u128; 2]; FIELDS] {
        let prefix = |prefix: Prefix<A>| {
            let shift = 128 - u32::from(A::BITS);
            let first = prefix.address().to_bits();
            let host = u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            [first >> shift, (first | host) >> shift]
        };
        let ports = |range: [u16; 2]| range.map(u128::from);
        let octets = |range: [u8; 2]| range.map(u128::from);
        [
            prefix(self.source),
            prefix(self.destination),
            ports(self.source_ports),
            ports(self.destination_ports),
            octets(self.protocols),
            octets(self.tags),
        ]
    }
}

#[cfg(test)]
mod tests;
