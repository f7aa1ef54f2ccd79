//! Compiles the filters of a block into sets.

use crate::rules::layout::session_rules::{
    BOUNDS, Condition, FILTERS, FilterSet, FilterSets, field,
};
use crate::session::Ports;

/// A filter of a rule, by source and destination of its packets. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PacketFilter {
    /// Index of the rule.
    pub(super) rule: u8,
    /// True if packets of the rule arrive through a tunnel.
    pub(super) is_tunnelled: bool,
    /// Index of the source prefix; none matches all.
    pub(super) source: Option<u8>,
    /// Index of the destination prefix; none matches all.
    pub(super) destination: Option<u8>,
    /// Source ports; empty matches all packets.
    pub(super) source_ports: Ports,
    /// Destination ports; empty matches all packets.
    pub(super) destination_ports: Ports,
    /// Values of other fields.
    pub(super) others: Vec<FieldValue>,
}

/// A value that a filter requires of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldValue {
    /// Number of the field, see [`field`].
    pub(super) field: u8,
    pub(super) value: u32,
    /// Mask of the type of service.
    pub(super) mask: u8,
}

/// Filters of a block as their sets. See the sections of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct CompiledFilters {
    pub(super) by_property: FilterSets,
    pub(super) rule_indices: Vec<u8>,
    /// Sets of each address as a source and as a destination.
    pub(super) addresses: Vec<[FilterSet; 2]>,
    pub(super) conditions: Vec<Condition>,
    pub(super) source_ports: PortSets,
    pub(super) destination_ports: PortSets,
    /// Sets that `PortSets` refer to, each once.
    pub(super) sets: Vec<FilterSet>,
}

/// Intervals of ports with their sets.
#[derive(Clone, Debug, Default)]
pub(super) struct PortSets {
    /// Upper bounds of all intervals but the last one, padded.
    pub(super) bounds: Vec<u16>,
    /// Index of the set of each interval. Without bounds there are none.
    pub(super) sets: Vec<u8>,
}

impl CompiledFilters {
    /// Compiles the filters of a block with this number of addresses; `None` if there are too many.
    pub(super) fn of(filters: &[PacketFilter], addresses: usize) -> Option<Self> {
        if filters.len() > FILTERS {
            return None;
        }
        let mut compiled = Self {
            rule_indices: filters.iter().map(|filter| filter.rule).collect(),
            addresses: vec![[0; 2]; addresses],
            ..Self::default()
        };
        let sets = &mut compiled.by_property;
        for (number, filter) in filters.iter().enumerate() {
            let bit: FilterSet = 1 << number;
            let ingress = match filter.is_tunnelled {
                true => &mut sets.tunnelled,
                false => &mut sets.untunnelled,
            };
            *ingress |= bit;
            let has_ports = !filter.source_ports.is_empty() || !filter.destination_ports.is_empty();
            sets.ports |= if has_ports { bit } else { 0 };
            let has_spi = filter.others.iter().any(|other| other.field == field::SPI);
            sets.transport |= if has_ports || has_spi { bit } else { 0 };
            match filter.source {
                Some(address) => compiled.addresses.get_mut(usize::from(address))?[0] |= bit,
                None => sets.any_source |= bit,
            }
            match filter.destination {
                Some(address) => compiled.addresses.get_mut(usize::from(address))?[1] |= bit,
                None => sets.any_destination |= bit,
            }
            for other in &filter.others {
                add_condition(&mut compiled.conditions, *other, bit);
            }
        }
        let sources: Vec<&Ports> = filters.iter().map(|filter| &filter.source_ports).collect();
        let destinations: Vec<&Ports> =
            filters.iter().map(|filter| &filter.destination_ports).collect();
        compiled.source_ports = port_sets(&sources, &mut compiled.sets)?;
        compiled.destination_ports = port_sets(&destinations, &mut compiled.sets)?;
        Some(compiled)
    }
}

fn add_condition(all: &mut Vec<Condition>, required: FieldValue, bit: FilterSet) {
    let FieldValue { field, value, mask } = required;
    let is_same = |it: &&mut Condition| (it.field, it.value, it.mask) == (field, value, mask);
    match all.iter_mut().find(is_same) {
        Some(condition) => condition.filters |= bit,
        None => all.push(Condition { value, filters: bit, field, mask, reserved: 0 }),
    }
}

/// Returns the intervals of one end's ports, in each of which the same filters match. `ports` are
/// those of each filter.
fn port_sets(ports: &[&Ports], sets: &mut Vec<FilterSet>) -> Option<PortSets> {
    let ranges = ports.iter().flat_map(|ranges| ranges.iter());
    let mut bounds: Vec<u16> =
        ranges.flat_map(|(first, last)| first.checked_sub(1).into_iter().chain([*last])).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds.retain(|bound| *bound != u16::MAX);
    if bounds.is_empty() {
        return Some(PortSets::default());
    }
    // Filters match all ports of an interval or none: its upper bound stands for it.
    let mut indices = Vec::with_capacity(bounds.len() + 1);
    for bound in bounds.iter().chain([&u16::MAX]) {
        let is_among = |(first, last): &(u16, u16)| (first..=last).contains(&bound);
        let mut set = 0;
        for (number, ranges) in ports.iter().enumerate() {
            let matches = ranges.is_empty() || ranges.iter().any(is_among);
            set |= FilterSet::from(matches) << number;
        }
        let index = sets.iter().position(|it| *it == set).unwrap_or_else(|| {
            sets.push(set);
            sets.len() - 1
        });
        indices.push(u8::try_from(index).ok()?);
    }
    bounds.resize(bounds.len().next_multiple_of(BOUNDS), u16::MAX);
    Some(PortSets { bounds, sets: indices })
}
