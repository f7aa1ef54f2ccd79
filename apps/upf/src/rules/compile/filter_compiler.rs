//! Compiles the filters of a block into sets.

use zerocopy::IntoBytes;

use crate::rules::layout::session_rules::{
    AddressPrefix, Bound, Condition, FILTERS, FilterPrefix, FilterSet, FilterSets, code, field,
};
use crate::session::Ports;

/// A filter of a rule, by source and destination of its packets. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PacketFilter {
    /// Index of the rule.
    pub(super) rule: usize,
    /// True if packets of the rule arrive through a tunnel.
    pub(super) is_tunnelled: bool,
    /// Source and ports.
    pub(super) source: PacketEnd,
    /// Destination and ports.
    pub(super) destination: PacketEnd,
    /// Values of other fields.
    pub(super) others: Vec<FieldValue>,
}

/// Conditions on one end of a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PacketEnd {
    /// Prefix of the address; none matches all.
    pub(super) prefix: Option<AddressPrefix>,
    /// Ports; empty matches all packets.
    pub(super) ports: Ports,
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
    pub(super) conditions: Vec<Condition>,
    pub(super) source_ports: Intervals,
    pub(super) destination_ports: Intervals,
    pub(super) sources: Intervals,
    pub(super) destinations: Intervals,
    /// Sets that the intervals refer to, each once.
    pub(super) sets: Vec<FilterSet>,
    pub(super) prefixes: Vec<FilterPrefix>,
}

/// Intervals of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    /// Number of upper bounds: of all intervals but the last one, padded.
    pub(super) bounds: usize,
    /// The bounds, and behind them a code for each interval.
    pub(super) bytes: Vec<u8>,
}

impl CompiledFilters {
    /// Compiles the filters of a block; `None` if there are too many.
    pub(super) fn of(filters: &[PacketFilter]) -> Option<Self> {
        if filters.len() > FILTERS {
            return None;
        }
        let mut compiled = Self::default();
        let sets = &mut compiled.by_property;
        let mut rule = None;
        for (number, filter) in filters.iter().enumerate() {
            let bit: FilterSet = 1 << number;
            sets.first |= if rule.replace(filter.rule) == Some(filter.rule) { 0 } else { bit };
            let ingress = match filter.is_tunnelled {
                true => &mut sets.tunnelled,
                false => &mut sets.untunnelled,
            };
            *ingress |= bit;
            let PacketFilter { source, destination, .. } = filter;
            let has_ports = !source.ports.is_empty() || !destination.ports.is_empty();
            let has_spi = filter.others.iter().any(|other| other.field == field::SPI);
            sets.transport |= if has_ports || has_spi { bit } else { 0 };
            for other in &filter.others {
                add_condition(&mut compiled.conditions, *other, bit);
            }
            add_prefix(&mut compiled.prefixes, source.prefix, [bit, 0]);
            add_prefix(&mut compiled.prefixes, destination.prefix, [0, bit]);
        }
        let all = &mut compiled.sets;
        let sources: Vec<&PacketEnd> = filters.iter().map(|it| &it.source).collect();
        let destinations: Vec<&PacketEnd> = filters.iter().map(|it| &it.destination).collect();
        (sets.any_source_port, compiled.source_ports) =
            intervals::<i16>(sources.iter().map(|end| port_ranges(end)), all)?;
        (sets.any_destination_port, compiled.destination_ports) =
            intervals::<i16>(destinations.iter().map(|end| port_ranges(end)), all)?;
        (sets.any_source, compiled.sources) =
            intervals::<i32>(sources.iter().map(|end| v4_ranges(end)), all)?;
        (sets.any_destination, compiled.destinations) =
            intervals::<i32>(destinations.iter().map(|end| v4_ranges(end)), all)?;
        Some(compiled)
    }
}

fn add_condition(all: &mut Vec<Condition>, required: FieldValue, bit: FilterSet) {
    let FieldValue { field, value, mask } = required;
    let is_same = |it: &&mut Condition| (it.field, it.value, it.mask) == (field, value, mask);
    match all.iter_mut().find(is_same) {
        Some(condition) => condition.filters |= bit,
        None => all.push(Condition { filters: bit, value, field, mask, reserved: 0 }),
    }
}

/// Adds an IPv6 prefix to a list, with the sets of filters whose source or destination it is.
fn add_prefix(all: &mut Vec<FilterPrefix>, prefix: Option<AddressPrefix>, bits: [FilterSet; 2]) {
    let Some(prefix) = prefix.filter(|prefix| prefix.family == 6) else { return };
    let [source, destination] = bits;
    match all.iter_mut().find(|it| it.prefix == prefix) {
        Some(found) => {
            found.source |= source;
            found.destination |= destination;
        }
        None => all.push(FilterPrefix { prefix, source, destination }),
    }
}

/// Ranges of values that a filter matches; `None`: all.
type Ranges = Option<Vec<(u32, u32)>>;

fn port_ranges(end: &PacketEnd) -> Ranges {
    let ranges = end.ports.iter().map(|(first, last)| (u32::from(*first), u32::from(*last)));
    (!end.ports.is_empty()).then(|| ranges.collect())
}

/// Returns the range of an IPv4 prefix. A prefix of the other family matches none.
fn v4_ranges(end: &PacketEnd) -> Ranges {
    let range = |prefix: AddressPrefix| {
        let first = (prefix.high >> 32) as u32;
        let rest = u32::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
        (first, first | rest)
    };
    end.prefix.map(|prefix| if prefix.family == 4 { vec![range(prefix)] } else { Vec::new() })
}

/// Returns the filters that match all values of a field, and the intervals in each of which the
/// same filters match. `ranges` are those of each filter. `None` if there are too many sets.
fn intervals<B: Bound>(
    ranges: impl Iterator<Item = Ranges>,
    sets: &mut Vec<FilterSet>,
) -> Option<(FilterSet, Intervals)> {
    let all: Vec<Ranges> = ranges.collect();
    let bits = all.iter().enumerate().map(|(number, it)| FilterSet::from(it.is_none()) << number);
    let any = bits.fold(0, |set, bit| set | bit);
    let ends = |(first, last): &(u32, u32)| first.checked_sub(1).into_iter().chain([*last]);
    let mut bounds: Vec<u32> = all.iter().flatten().flatten().flat_map(ends).collect();
    if bounds.is_empty() {
        return Some((any, Intervals::default()));
    }
    bounds.sort_unstable();
    bounds.dedup();
    bounds.retain(|bound| *bound != B::MOST);
    // Filters match all values of an interval or none: its upper bound stands for it.
    let mut codes = Vec::with_capacity(bounds.len() + 1);
    for bound in bounds.iter().chain([&B::MOST]) {
        let is_among = |(first, last): &(u32, u32)| (first..=last).contains(&bound);
        let mut set = any;
        for (number, ranges) in all.iter().enumerate() {
            let matches = ranges.as_ref().is_some_and(|ranges| ranges.iter().any(is_among));
            set |= FilterSet::from(matches) << number;
        }
        codes.push(code_of(set, any, sets)?);
    }
    bounds.resize(bounds.len().max(1).next_multiple_of(B::GROUP), B::MOST);
    let bounds: Vec<B> = bounds.into_iter().map(B::of).collect();
    let bytes = [bounds.as_bytes(), &codes].concat();
    Some((any, Intervals { bounds: bounds.len(), bytes }))
}

/// Returns the code of the set of an interval; `any` are the filters that match in all intervals.
fn code_of(set: FilterSet, any: FilterSet, sets: &mut Vec<FilterSet>) -> Option<u8> {
    let own = set & !any;
    if own == 0 {
        return Some(code::NONE);
    }
    if own.is_power_of_two() {
        return u8::try_from(own.trailing_zeros()).ok();
    }
    let index = sets.iter().position(|it| *it == set).unwrap_or_else(|| {
        sets.push(set);
        sets.len() - 1
    });
    let code = u8::try_from(index).ok()?.checked_add(code::STORED)?;
    Some(code).filter(|code| *code != code::NONE)
}
