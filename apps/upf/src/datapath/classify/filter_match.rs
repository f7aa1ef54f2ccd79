//! Matches a packet against the filters of a block, all at once.

use super::{PacketFields, Ports};
use crate::rules::layout::session_rules::{
    AddressPrefix, Block, BlockAddress, Condition, FilterSet, field,
};

/// Filters and addresses of a block that match a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterMatch {
    /// Filters that match.
    pub(super) matching: FilterSet,
    /// Filters that may match: they need fields behind the IP header, which a later fragment
    /// without its first one does not have.
    pub(super) unknown: FilterSet,
    /// Bit set of the block's first 64 addresses that contain the source.
    pub(super) source: u64,
    /// Bit set of those that contain the destination.
    pub(super) destination: u64,
}

impl FilterMatch {
    /// Matches a packet. Of rules, only the ingress with or without a tunnel is considered.
    #[inline(always)]
    pub(super) fn of(block: &Block, fields: &PacketFields) -> Self {
        let sets = &block.filters;
        let addresses = AddressMatch::of(block.addresses(), fields);
        let ingress = if fields.tunnel.is_some() { sets.tunnelled } else { sets.untunnelled };
        let mut matching = ingress
            & (sets.any_source | addresses.of_source)
            & (sets.any_destination | addresses.of_destination);
        for condition in block.conditions() {
            matching &= if holds(condition, fields) { FilterSet::MAX } else { !condition.filters };
        }
        let mut unknown = 0;
        match fields.ports {
            Ports::Known(source, destination) => {
                matching &= block.source_port(source) & block.destination_port(destination);
            }
            Ports::None => matching &= !sets.ports,
            Ports::Unknown => {
                (matching, unknown) = (matching & !sets.transport, matching & sets.transport);
            }
        }
        let AddressMatch { source, destination, .. } = addresses;
        Self { matching, unknown, source, destination }
    }
}

/// Returns true if a packet fulfils a condition, or if the field is not known.
#[inline(always)]
fn holds(condition: &Condition, fields: &PacketFields) -> bool {
    let value = condition.value;
    match condition.field {
        field::PROTOCOL => value == u32::from(fields.protocol),
        field::TOS => value == u32::from(fields.tos & condition.mask),
        field::FLOW_LABEL => fields.family == 6 && value == fields.flow_label,
        _ => fields.ports == Ports::Unknown || fields.spi == Some(value),
    }
}

/// Addresses of a block that match a packet.
#[derive(Default)]
struct AddressMatch {
    /// One bit per address that contains the source.
    source: u64,
    /// One bit per address that contains the destination.
    destination: u64,
    /// Filters with a source prefix that matches.
    of_source: FilterSet,
    /// Filters with a destination prefix that matches.
    of_destination: FilterSet,
}

impl AddressMatch {
    #[inline(always)]
    fn of(addresses: &[BlockAddress], fields: &PacketFields) -> Self {
        let (source, destination) = (fields.source, fields.destination);
        if fields.family == 4 {
            let [source, destination] = [source, destination].map(|bits| (bits >> 64) as u64);
            Self::by(addresses, |prefix| [prefix.holds_v4(source), prefix.holds_v4(destination)])
        } else {
            Self::by(addresses, |prefix| [prefix.holds(6, source), prefix.holds(6, destination)])
        }
    }

    #[inline(always)]
    fn by(addresses: &[BlockAddress], holds: impl Fn(&AddressPrefix) -> [bool; 2]) -> Self {
        let mut found = Self::default();
        for (bit, address) in addresses.iter().take(64).enumerate() {
            let [is_source, is_destination] = holds(&address.prefix);
            found.source |= u64::from(is_source) << bit;
            found.destination |= u64::from(is_destination) << bit;
            found.of_source |= address.source & FilterSet::from(is_source).wrapping_neg();
            found.of_destination |=
                address.destination & FilterSet::from(is_destination).wrapping_neg();
        }
        found
    }
}
