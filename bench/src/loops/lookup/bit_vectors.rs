//! Bit vectors (Lakshman, Stiliadis, 1998) with aggregation (Baboescu, Varghese, 2001): measured
//! beside the classifier of Fastlane, which does not use them.
//!
//! The edges of the rules divide each field into intervals. Each interval has a bit for every rule
//! that covers it, and an aggregate with a bit for every group of 512 rules. The intersection of
//! five vectors has the matching rules, the first one lowest.

use crate::loops::lookup::BULK;
use crate::loops::lookup::rule_sets::{Flow, FlowRule};

/// Number of fields: addresses, ports, protocol.
const FIELDS: usize = 5;
/// Number of words in a group: a cache line.
const GROUP: usize = 8;

/// Intervals of a field and their vectors.
struct Field {
    /// First values of the intervals, padded to a power of two.
    starts: Vec<u32>,
    vectors: Vec<[u64; GROUP]>,
    aggregates: Vec<u32>,
}

/// Bit vectors of up to 16,384 rules.
pub(super) struct BitVectors {
    fields: [Field; FIELDS],
    /// Number of groups of a vector.
    groups: usize,
}

fn ranges(rule: &FlowRule) -> [[u32; 2]; FIELDS] {
    let prefix = |side: usize| {
        let host = u32::MAX.checked_shr(rule.lengths[side]).unwrap_or(0);
        [rule.addresses[side], rule.addresses[side] | host]
    };
    let [source, destination] = rule.ports.map(|range| range.map(u32::from));
    [prefix(0), prefix(1), source, destination, rule.protocols.map(u32::from)]
}

impl BitVectors {
    pub(super) fn new(rules: &[FlowRule]) -> Self {
        let groups = rules.len().div_ceil(64 * GROUP);
        let all: Vec<_> = rules.iter().map(ranges).collect();
        let fields = std::array::from_fn(|field| {
            let edges = all.iter().flat_map(|rule| {
                let [first, last] = rule[field];
                [Some(first), last.checked_add(1)]
            });
            let mut starts: Vec<u32> = edges.flatten().chain([0]).collect();
            starts.sort_unstable();
            starts.dedup();
            let mut vectors = vec![[0; GROUP]; groups * starts.len()];
            let mut aggregates = vec![0; starts.len()];
            for (number, rule) in all.iter().enumerate() {
                let [first, last] = rule[field];
                let from = starts.partition_point(|start| *start < first);
                let to = starts.partition_point(|start| *start <= last);
                let (group, bit) = (number / (64 * GROUP), number % (64 * GROUP));
                for interval in from..to {
                    vectors[interval * groups + group][bit / 64] |= 1 << (bit % 64);
                    aggregates[interval] |= 1 << group;
                }
            }
            starts.resize(starts.len().next_power_of_two(), u32::MAX);
            Field { starts, vectors, aggregates }
        });
        Self { fields, groups }
    }

    /// Writes for each flow 1 + the number of the first rule, or 0.
    pub(super) fn find(&self, flows: &[Flow; BULK], results: &mut [u32; BULK]) {
        let mut intervals = [[0; FIELDS]; BULK];
        for (number, field) in self.fields.iter().enumerate() {
            let value = |flow: &Flow| match number {
                0 | 1 => flow.addresses[number],
                2 | 3 => flow.ports[number - 2].into(),
                _ => flow.protocol.into(),
            };
            // A binary search of all flows at once, without branches.
            let mut width = field.starts.len() / 2;
            while width > 0 {
                for (flow, intervals) in flows.iter().zip(&mut intervals) {
                    let at = &mut intervals[number];
                    *at += if field.starts[*at + width] <= value(flow) { width } else { 0 };
                }
                width /= 2;
            }
        }
        for (intervals, result) in intervals.iter().zip(results) {
            // A value of all ones may find the padding.
            let at: [usize; FIELDS] = std::array::from_fn(|field| {
                intervals[field].min(self.fields[field].aggregates.len() - 1)
            });
            *result = self.first(at);
        }
    }

    fn first(&self, at: [usize; FIELDS]) -> u32 {
        let aggregates = self.fields.iter().zip(at).map(|(field, at)| field.aggregates[at]);
        let mut left = aggregates.fold(u32::MAX, |all, aggregate| all & aggregate);
        while left != 0 {
            let group = left.trailing_zeros() as usize;
            let mut vector = [u64::MAX; GROUP];
            for (field, at) in self.fields.iter().zip(at) {
                let other = &field.vectors[at * self.groups + group];
                vector.iter_mut().zip(other).for_each(|(word, other)| *word &= other);
            }
            if let Some(word) = vector.iter().position(|word| *word != 0) {
                let bit = word * 64 + vector[word].trailing_zeros() as usize;
                return (group * 64 * GROUP + bit) as u32 + 1;
            }
            left &= left - 1;
        }
        0
    }
}
