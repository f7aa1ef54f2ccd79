//! Matches a packet against the filters of a block, all at once.

use super::{PacketFields, Ports};
use crate::rules::layout::session_rules::{Block, Condition, FilterSet, FilterSets, field};

/// Filters of a block that match a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterMatch {
    /// Filters that match.
    pub(super) matching: FilterSet,
    /// Filters that may match: they need fields behind the IP header, which a later fragment
    /// without its first one does not have.
    pub(super) unknown: FilterSet,
}

impl FilterMatch {
    /// Matches a packet. Of rules, only the ingress with or without a tunnel is considered.
    #[inline(always)]
    pub(super) fn of(block: &Block, fields: &PacketFields) -> Self {
        let sets = &block.filters;
        let ingress = if fields.tunnel.is_some() { sets.tunnelled } else { sets.untunnelled };
        let mut matching = ingress & addresses(block, fields);
        for condition in block.conditions() {
            matching &= if holds(condition, fields) { FilterSet::MAX } else { !condition.filters };
        }
        let mut unknown = 0;
        match fields.ports {
            Ports::Known(source, destination) => {
                matching &= block.source_port(source) & block.destination_port(destination);
            }
            Ports::None => matching &= sets.any_source_port & sets.any_destination_port,
            Ports::Unknown => {
                (matching, unknown) = (matching & !sets.transport, matching & sets.transport);
            }
        }
        Self { matching, unknown }
    }
}

/// Returns the filters that match the addresses of a packet.
#[inline(always)]
fn addresses(block: &Block, fields: &PacketFields) -> FilterSet {
    let PacketFields { family, source, destination, .. } = *fields;
    if family != 4 {
        return addresses_v6(block, source, destination);
    }
    let [source, destination] = [source, destination].map(|bits| (bits >> 96) as u32);
    block.source_v4(source) & block.destination_v4(destination)
}

#[inline(never)]
fn addresses_v6(block: &Block, source: u128, destination: u128) -> FilterSet {
    let FilterSets { any_source: mut from, any_destination: mut to, .. } = block.filters;
    for filters in block.prefixes() {
        let [is_source, is_destination] =
            [source, destination].map(|bits| filters.prefix.holds(6, bits));
        from |= filters.source & FilterSet::from(is_source).wrapping_neg();
        to |= filters.destination & FilterSet::from(is_destination).wrapping_neg();
    }
    from & to
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
