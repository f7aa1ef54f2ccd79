//! Content of a block, which is filled by trial.

use zerocopy::{Immutable, IntoBytes};

use super::filter_compiler::{CompiledFilters, Intervals, PacketFilter};
use crate::rules::layout::session_rules::{
    AddressPrefix, Block, Bound, Count, EndMarkerEntry, Limit, Meter, OuterPath, ROOM, Rule,
    SECTIONS, Section, SlotCharge, Span,
};

/// Content of a block to be built. The lists may exceed a block; [`build`](Self::build) then
/// returns `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Builder {
    /// Rules in the order of evaluation.
    pub(super) rules: Vec<Rule>,
    /// Filters of the rules, in the same order.
    pub(super) filters: Vec<PacketFilter>,
    /// Addresses of UEs.
    pub(super) users: Vec<AddressPrefix>,
    /// Limits of the counters.
    pub(super) limits: Vec<Limit>,
    /// Counters of URRs.
    pub(super) counts: Vec<Count>,
    /// Paths of packets and copies.
    pub(super) paths: Vec<OuterPath>,
    /// Meters of QERs.
    pub(super) meters: Vec<Meter>,
    /// Charges of counter slots.
    pub(super) charges: Vec<SlotCharge>,
    /// Redirections in bytes.
    pub(super) text: Vec<u8>,
    /// End markers that are due.
    pub(super) end_markers: Vec<EndMarkerEntry>,
}

impl Builder {
    /// Returns the index of a value in a list, which is appended if it is missing.
    pub(super) fn place<T: PartialEq>(list: &mut Vec<T>, value: T) -> usize {
        list.iter().position(|it| *it == value).unwrap_or_else(|| {
            list.push(value);
            list.len() - 1
        })
    }

    /// Returns the index of a list of values in another one, to which it is appended if it is
    /// missing.
    pub(super) fn place_list<T: PartialEq + Copy>(list: &mut Vec<T>, values: &[T]) -> usize {
        let found = list.windows(values.len().max(1)).position(|it| it == values);
        found.unwrap_or_else(|| {
            list.extend_from_slice(values);
            list.len() - values.len()
        })
    }

    /// Returns true if there is nothing that a lane would read.
    pub(super) const fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.end_markers.is_empty()
    }

    /// Returns true if the content fits the block and the widths of the indices in rules.
    pub(super) fn fits(&self) -> bool {
        self.build(0, 0).is_some()
    }

    /// Returns the block as the last of its chain, or `None` if the content does not fit.
    pub(super) fn build(&self, session: u32, version: u32) -> Option<Block> {
        if [self.meters.len(), self.counts.len(), self.charges.len()].iter().any(|it| *it > 32) {
            return None;
        }
        let filters = CompiledFilters::of(&self.filters)?;
        let mut block = Block::empty();
        (block.session, block.version) = (session, version);
        block.filters = filters.by_property;
        let mut end = 0;
        for (section, list) in self.sections(&filters).into_iter().enumerate() {
            let List { count, alignment, bytes } = list;
            let offset = usize::next_multiple_of(end, alignment);
            end = offset + bytes.len();
            block.room.get_mut(offset..end)?.copy_from_slice(bytes);
            let (offset, count) = (u16::try_from(offset).ok()?, u16::try_from(count).ok()?);
            block.spans[section] = Span { offset, count };
        }
        Some(block)
    }

    fn sections<'a>(&'a self, filters: &'a CompiledFilters) -> [List<'a>; SECTIONS] {
        let mut sections = [List { count: 0, alignment: 1, bytes: &[] }; SECTIONS];
        let mut set = |section: Section, list| sections[section as usize] = list;
        set(Section::Conditions, List::of(&filters.conditions));
        set(Section::SourcePorts, List::of_intervals::<i16>(&filters.source_ports));
        set(Section::DestinationPorts, List::of_intervals::<i16>(&filters.destination_ports));
        set(Section::Sources, List::of_intervals::<i32>(&filters.sources));
        set(Section::Destinations, List::of_intervals::<i32>(&filters.destinations));
        set(Section::Sets, List::of(&filters.sets));
        set(Section::Prefixes, List::of(&filters.prefixes));
        set(Section::Rules, List::of(&self.rules));
        set(Section::Users, List::of(&self.users));
        set(Section::Paths, List::of(&self.paths));
        set(Section::Charges, List::of(&self.charges));
        set(Section::Counts, List::of(&self.counts));
        set(Section::Meters, List::of(&self.meters));
        set(Section::Limits, List::of(&self.limits));
        set(Section::Text, List::of(&self.text));
        set(Section::EndMarkers, List::of(&self.end_markers));
        sections
    }
}

/// Values of a section.
#[derive(Clone, Copy)]
struct List<'a> {
    count: usize,
    alignment: usize,
    bytes: &'a [u8],
}

impl<'a> List<'a> {
    fn of<T: IntoBytes + Immutable>(values: &'a [T]) -> Self {
        Self { count: values.len(), alignment: align_of::<T>(), bytes: values.as_bytes() }
    }

    fn of_intervals<B: Bound>(intervals: &'a Intervals) -> Self {
        let Intervals { bounds, bytes } = intervals;
        Self { count: *bounds, alignment: align_of::<B>(), bytes }
    }
}

const _: () = assert!(size_of::<Block>() == 144 + ROOM);
