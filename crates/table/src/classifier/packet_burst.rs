//! Burst of packets on its way through a classifier: the intervals of each, then its leaf in each
//! tree, then the first rule of the leaf that matches.
//!
//! All packets take a step of a tree before one takes the next step, so that their cache misses
//! overlap. Which of them go on is kept in a word of bits: with a list of their indexes in memory
//! a lookup took half as long again (docs/why/0027-classifier.md).

use super::block::{Block, Intervals, RULES, interval};
use super::cuts::{DEPTH, Entry, Root, TREES};
use super::flow_address::FlowAddress;
use super::generation::{FamilyHeader, Generation, SearchHeader};
use super::instructions::Instructions;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::instructions::{Avx2, Avx512};
use super::intervals::{Node4, Search, SearchNode};
use super::{BURST, FlowKey};

/// Number of no rule.
pub(crate) const NONE: u32 = u32::MAX;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
pub(crate) fn classify_avx2<A: FlowAddress>(
    generation: &Generation<'_>,
    family: &FamilyHeader,
    keys: &[FlowKey<A>],
    rules: &mut [u32; BURST],
) {
    classify::<A, Avx2>(generation, family, keys, rules);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,popcnt,bmi1,bmi2")]
pub(crate) fn classify_avx512<A: FlowAddress>(
    generation: &Generation<'_>,
    family: &FamilyHeader,
    keys: &[FlowKey<A>],
    rules: &mut [u32; BURST],
) {
    classify::<A, Avx512>(generation, family, keys, rules);
}

/// Packets of a burst.
struct Packets {
    count: usize,
    /// Intervals of each packet.
    intervals: [Intervals; BURST],
    /// First rule of each packet so far.
    rules: [u32; BURST],
}

/// Finds the first rule of each packet of a burst.
#[inline(always)]
pub(crate) fn classify<A: FlowAddress, I: Instructions>(
    generation: &Generation<'_>,
    family: &FamilyHeader,
    keys: &[FlowKey<A>],
    rules: &mut [u32; BURST],
) {
    let count = keys.len().min(BURST);
    let keys = &keys[..count];
    let intervals = [Intervals::default(); BURST];
    let mut packets = Packets { count, intervals, rules: [NONE; BURST] };
    let all = &mut packets.intervals;
    let [source, destination, source_port, destination_port] = &family.searches;
    let find = search::<A::Node>(generation, source);
    let key = |at: usize| A::Node::key(keys[at].source.number());
    find.find::<I>(count, key, |at, number| all[at][0] = interval(number));
    let find = search::<A::Node>(generation, destination);
    let key = |at: usize| A::Node::key(keys[at].destination.number());
    find.find::<I>(count, key, |at, number| all[at][1] = interval(number));
    let find = search::<Node4>(generation, source_port);
    let key = |at: usize| Node4::key(keys[at].source_port.into());
    find.find::<I>(count, key, |at, number| all[at][2] = interval(number));
    let find = search::<Node4>(generation, destination_port);
    let key = |at: usize| Node4::key(keys[at].destination_port.into());
    find.find::<I>(count, key, |at, number| all[at][3] = interval(number));
    if let [protocols, tags] = generation.array::<[u16; 256]>(family.octets) {
        for (intervals, key) in all.iter_mut().zip(keys) {
            intervals[4] = interval(protocols[usize::from(key.protocol)]);
            intervals[5] = interval(tags[usize::from(key.tag)]);
        }
    }
    let (entries, blocks) = (generation.array(family.entries), generation.array(family.blocks));
    for root in family.roots.iter().take((family.trees as usize).min(TREES)) {
        tree::<I>(root, entries, blocks, &mut packets);
    }
    *rules = packets.rules;
}

#[inline(always)]
fn search<'t, N: SearchNode>(generation: &Generation<'t>, header: &SearchHeader) -> Search<'t, N> {
    let nodes = generation.array(header.nodes);
    Search { nodes, starts: header.starts, levels: header.levels as usize }
}

/// Finds the first rule of each packet in a tree, and keeps those of earlier trees that are first.
#[inline(always)]
fn tree<I: Instructions>(
    root: &Root,
    entries: &[Entry],
    blocks: &[Block],
    Packets { count, intervals, rules }: &mut Packets,
) {
    // Packets for which a rule of the tree may be the first one.
    let mut chosen = PacketSet::default();
    for (index, rule) in rules.iter().enumerate().take(*count) {
        chosen.insert_if(*rule > root.first_rule, index);
    }
    let mut at = [root.entry; BURST];
    descend(entries, intervals, chosen, &mut at);
    compare::<I>(blocks, intervals, chosen, &at, rules);
}

/// Follows the entries of a tree to a leaf for each chosen packet.
#[inline(always)]
fn descend(
    entries: &[Entry],
    intervals: &[Intervals; BURST],
    chosen: PacketSet,
    at: &mut [Entry; BURST],
) {
    // A root may be a leaf.
    let mut open = if at[0].is_inner() { chosen } else { PacketSet::default() };
    for _ in 0..=DEPTH {
        let mut still = PacketSet::default();
        for packet in open {
            let child = at[packet].child(&intervals[packet]);
            let entry = entries.get(child).copied().unwrap_or_default();
            at[packet] = entry;
            still.insert_if(entry.is_inner(), packet);
        }
        open = still;
        if open.is_empty() {
            return;
        }
    }
    // Deeper than any tree: the memory is damaged.
    open.for_each(|packet| at[packet] = Entry::default());
}

/// Compares each chosen packet with the rules of its leaf, block by block, until one matches.
///
/// All packets are compared with their first block before one is with its second.
#[inline(always)]
fn compare<I: Instructions>(
    blocks: &[Block],
    intervals: &[Intervals; BURST],
    chosen: PacketSet,
    at: &[Entry; BURST],
    rules: &mut [u32; BURST],
) {
    let (mut open, mut number) = (chosen, 0);
    while !open.is_empty() {
        let mut still = PacketSet::default();
        for packet in open {
            let (entry, rule) = (at[packet], &mut rules[packet]);
            let Some(block) = blocks.get(entry.base as usize + number) else { continue };
            let found = I::first_match(block, &intervals[packet]);
            // All ones if none has matched, or the leaf is empty.
            let none = 0_u32.wrapping_sub((found / RULES) as u32 | u32::from(entry.low == 0));
            *rule = (*rule).min(block.rules[found % RULES] | none);
            let goes_on = (number + 1 < entry.low.into()) & (found >= RULES);
            still.insert_if(goes_on & (block.rules[RULES - 1] < *rule), packet);
        }
        open = still;
        number += 1;
    }
}

/// Set of packets of a burst, by index. Whether a packet goes on to the next step is data here, not
/// a branch: a processor would guess it wrong for every other packet.
#[derive(Clone, Copy, Debug, Default)]
struct PacketSet(u32);

impl PacketSet {
    #[inline(always)]
    fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a packet if a condition is true.
    #[inline(always)]
    fn insert_if(&mut self, condition: bool, index: usize) {
        self.0 |= u32::from(condition) << (index % BURST);
    }
}

impl Iterator for PacketSet {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let next = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (next < BURST).then_some(next)
    }
}
