//! Partition: which rules share a decision tree.
//!
//! A rule with a wide range in a field is copied into most parts when that field is cut. Rules that
//! are wide in the source and rules that are wide in the destination, in one tree, multiply each
//! other; in two trees they do not. A lookup goes through all trees, so few are better. Several
//! partitions are built, and the one with the least estimated time is kept.

use super::FIELDS;
use super::block::RULES;
use super::cuts::{Excess, Forest, Limits, Ranges, Root, Statistics, TREES};

/// Field numbers of the addresses.
const SOURCE: usize = 0;
const DESTINATION: usize = 1;
/// A range is wide if it has more than one of these parts of all intervals.
const WIDE: usize = 8;
/// Trees of the rules that are wide in no address, in the source, in the destination, in both.
const PARTITIONS: [[usize; 4]; 4] = [[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 2, 3]];
/// Estimated time to begin a tree, in units of an entry.
const TREE: f64 = 2.0;
/// Memory that is hardly slower than none, in bytes, and the share of time that each doubling adds.
const FAST: f64 = 500_000.0;
const DOUBLING: f64 = 0.15;
/// Numbers of rules of a leaf that is not cut. Two blocks cost about as much to compare as two
/// entries to follow. The others are for lists whose rules overlap so much that cuts copy them too
/// often.
const LEAVES: [usize; 4] = [2 * RULES, 8 * RULES, 32 * RULES, 64 * RULES];
/// Memory for each rule, and for all together, that is tried before all of it, in bytes.
const FRUGAL: [usize; 2] = [256, 64 << 10];

/// Decision trees of all rules of an address family.
pub(crate) struct Trees<'r> {
    pub(crate) forest: Forest<'r>,
    pub(crate) roots: Vec<Root>,
    pub(crate) statistics: Statistics,
}

/// Builds the decision trees of rules with the least estimated time.
pub(crate) fn trees(
    rules: &[Ranges],
    intervals: [usize; FIELDS],
    limits: Limits,
) -> Result<Trees<'_>, Excess> {
    let frugal = (FRUGAL[0] * rules.len() + FRUGAL[1]).min(limits.bytes);
    let attempts = LEAVES.iter().map(|leaf| Limits { leaf: *leaf, ..limits });
    let first = Limits { bytes: frugal, leaf: LEAVES[0], ..limits };
    let mut result = best(rules, intervals, first);
    for limits in attempts {
        if result.is_err() {
            result = best(rules, intervals, limits);
        }
    }
    result
}

fn best(rules: &[Ranges], intervals: [usize; FIELDS], limits: Limits) -> Result<Trees<'_>, Excess> {
    let is_wide = |rule: &Ranges, field: usize| {
        let [first, last] = rule[field];
        (usize::from(last - first) + 1) * WIDE > intervals[field]
    };
    let kind = |rule: &Ranges| {
        usize::from(is_wide(rule, SOURCE)) + 2 * usize::from(is_wide(rule, DESTINATION))
    };
    // A range whose first value is greater than its last one contains nothing.
    let is_met = |rule: &Ranges| rule.iter().all(|[first, last]| first <= last);
    let met = rules.iter().zip(0..).filter(|(rule, _)| is_met(rule));
    let kinds: Vec<(u32, usize)> = met.map(|(rule, number)| (number, kind(rule))).collect();
    let mut best: Result<Trees<'_>, Excess> = Err(Excess::Bytes(limits.bytes));
    for partition in PARTITIONS {
        let mut groups = vec![Vec::new(); TREES];
        for (rule, kind) in &kinds {
            groups[partition[*kind]].push(*rule);
        }
        groups.retain(|group| !group.is_empty());
        if partition != PARTITIONS[0] && groups.len() < 2 {
            continue;
        }
        // The tree with the first rule is the first one, so that later ones are often skipped.
        groups.sort_by_key(|group| group.first().copied());
        let built = build(rules, intervals, limits, groups);
        let is_better = match (&best, &built) {
            (Ok(best), Ok(built)) => built.statistics.cost < best.statistics.cost,
            (Err(_), _) => true,
            (Ok(_), Err(_)) => false,
        };
        if is_better {
            best = built;
        }
    }
    best
}

fn build(
    rules: &[Ranges],
    intervals: [usize; FIELDS],
    limits: Limits,
    groups: Vec<Vec<u32>>,
) -> Result<Trees<'_>, Excess> {
    let mut forest = Forest::new(rules, intervals, limits);
    let (mut roots, mut cost) = (Vec::new(), 0.0);
    for group in groups {
        let first_rule = group.first().copied().unwrap_or_default();
        roots.push(Root { entry: forest.tree(group)?, first_rule, reserved: 0 });
        cost += TREE + forest.take_cost();
    }
    let (trees, bytes) = (roots.len(), forest.bytes());
    let doublings = (bytes as f64 / FAST).log2().max(0.0);
    let (depth, compared, cost) =
        (forest.depth, forest.compared, cost * (1.0 + DOUBLING * doublings));
    let statistics = Statistics { trees, depth, compared, bytes, cost };
    Ok(Trees { forest, roots, statistics })
}
