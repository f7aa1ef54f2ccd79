//! Reader of a classifier: lookups by lanes.
#![allow(unsafe_code, reason = "functions for processors with certain instructions")]

use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::block::{Block, Intervals};
use super::cuts::{DEPTH, Entry, Root, TREES};
use super::generation::{Areas, FamilyHeader, Generation, SearchHeader};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::instructions::{Avx2, Avx512};
use super::instructions::{Instructions, Portable};
use super::intervals::{Node4, Node6, Search, SearchNode};
use super::{BURST, FlowKey};
use crate::header::Header;
use crate::{Address, Guard, SharedMemory, Spec, TableError, Value};

/// Address of packets that can be classified: IPv4 or IPv6.
pub trait FlowAddress: Address + Family {}
impl<A: Address + Family> FlowAddress for A {}

/// Address family of a classifier.
pub trait Family: Copy {
    /// Number of the family in a generation.
    const NUMBER: usize;
    /// Node of the search trees of addresses.
    type Node: SearchNode;
    /// Returns the address as a number.
    fn number(self) -> u128;
}

impl Family for Ipv4Addr {
    const NUMBER: usize = 0;
    type Node = Node4;

    #[inline(always)]
    fn number(self) -> u128 {
        Self::to_bits(self).into()
    }
}

impl Family for Ipv6Addr {
    const NUMBER: usize = 1;
    type Node = Node6;

    #[inline(always)]
    fn number(self) -> u128 {
        Self::to_bits(self)
    }
}

/// Reader of a classifier: returns the value of the first rule that matches a packet.
///
/// # Examples
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::Arc;
///
/// use fastlane_table::{
///     ClassifierReader, ClassifierWriter, FlowKey, FlowMatch, Guard, Readers, RuleList, Spec,
/// };
///
/// let memory = Spec::classifier::<u64>("rules", 100).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = ClassifierWriter::<u64>::attach(&memory, &readers)?;
/// let web = FlowMatch { destination_ports: [80, 80], ..FlowMatch::<Ipv4Addr>::any() };
/// let ipv4 = [(web, 1), (FlowMatch::any(), 2)];
/// writer.replace(&RuleList { ipv4: &ipv4, ipv6: &[], source: b"web, then all else" })?;
/// assert_eq!(writer.source(), b"web, then all else");
///
/// let reader = ClassifierReader::<u64>::attach(&memory)?;
/// // In a lane the turn is the guard.
/// // SAFETY: the writer does not write while the guard is borrowed.
/// let guard = unsafe { Guard::new() };
/// let [source, destination] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host));
/// let [source_port, destination_port] = [40_000, 80];
/// let key = FlowKey { source, destination, source_port, destination_port, protocol: 6, tag: 0 };
/// assert_eq!(reader.lookup(&guard, &key), Some(&1));
/// assert_eq!(reader.lookup(&guard, &FlowKey { destination_port: 81, ..key }), Some(&2));
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClassifierReader<V> {
    pub(super) areas: Areas,
    pub(super) header: Arc<Header>,
    instructions: Available,
    value: PhantomData<fn() -> V>,
}

/// Fastest instructions of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Available {
    Portable,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
}

impl Available {
    fn fastest() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            return if has_avx512 { Self::Avx512 } else { Self::Avx2 };
        }
        Self::Portable
    }
}

/// Number of no rule.
const NONE: u32 = u32::MAX;

impl<V: Value> ClassifierReader<V> {
    /// Attaches to a classifier.
    ///
    /// # Errors
    /// Returns an error if the memory holds no classifier, or one with other values.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &Spec::classifier::<V>("", 1))?)
    }

    pub(super) fn new(header: Header) -> Result<Self, TableError> {
        let areas = Areas::new(&header)?;
        let instructions = Available::fastest();
        Ok(Self { areas, header: Arc::new(header), instructions, value: PhantomData })
    }

    /// Returns the current lists. All lookups in them see the same lists, even if the writer
    /// replaces them meanwhile.
    #[inline]
    pub fn current<'t, G>(&'t self, turn: &'t G) -> CurrentRules<'t, V>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let generation = self.areas.generation(turn.as_ref());
        CurrentRules { generation, instructions: self.instructions, value: PhantomData }
    }

    /// Returns the value of the first rule that matches a packet, or `None` without one.
    #[inline]
    pub fn lookup<'t, A, G>(&'t self, turn: &'t G, key: &FlowKey<A>) -> Option<&'t V>
    where
        A: FlowAddress,
        G: AsRef<Guard> + ?Sized,
    {
        self.current(turn).lookup(key)
    }

    /// Looks up many packets at once; see [`CurrentRules::lookup_many`].
    #[inline]
    pub fn lookup_many<'t, A, G>(
        &'t self,
        turn: &'t G,
        keys: &[FlowKey<A>],
        values: &mut [Option<&'t V>],
    ) where
        A: FlowAddress,
        G: AsRef<Guard> + ?Sized,
    {
        self.current(turn).lookup_many(keys, values);
    }
}

/// Lists of a classifier as they are at one time, for the rest of the turn.
#[derive(Clone, Copy, Debug)]
pub struct CurrentRules<'t, V> {
    generation: Option<Generation<'t>>,
    instructions: Available,
    value: PhantomData<fn() -> V>,
}

impl<'t, V: Value> CurrentRules<'t, V> {
    /// Returns the value of the first rule that matches a packet, or `None` without one.
    #[inline]
    #[must_use]
    pub fn lookup<A: FlowAddress>(&self, key: &FlowKey<A>) -> Option<&'t V> {
        let mut found = [None];
        self.lookup_many(std::slice::from_ref(key), &mut found);
        found[0]
    }

    /// Looks up many packets at once, so that their cache misses overlap. Writes the value of each
    /// packet's first matching rule to `values`, as far as it has room. Bursts of 32 are the
    /// fastest.
    #[inline]
    pub fn lookup_many<A: FlowAddress>(&self, keys: &[FlowKey<A>], values: &mut [Option<&'t V>]) {
        let count = keys.len().min(values.len());
        let (keys, values) = (&keys[..count], &mut values[..count]);
        let Some(generation) = &self.generation else {
            values.fill(None);
            return;
        };
        let family = &generation.header.families[A::NUMBER];
        let all: &[V] = generation.array(family.values);
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut rules = [NONE; BURST];
            self.burst::<A>(generation, family, keys, &mut rules);
            let found = rules.iter().map(|rule| all.get(*rule as usize));
            values.iter_mut().zip(found).for_each(|(value, found)| *value = found);
        }
    }

    #[inline(always)]
    fn burst<A: FlowAddress>(
        &self,
        generation: &Generation<'_>,
        family: &FamilyHeader,
        keys: &[FlowKey<A>],
        rules: &mut [u32; BURST],
    ) {
        match self.instructions {
            Available::Portable => classify::<A, Portable>(generation, family, keys, rules),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the processor has these instructions (`Available::fastest`).
            Available::Avx2 => unsafe { classify_avx2(generation, family, keys, rules) },
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: as above.
            Available::Avx512 => unsafe { classify_avx512(generation, family, keys, rules) },
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
fn classify_avx2<A: FlowAddress>(
    generation: &Generation<'_>,
    family: &FamilyHeader,
    keys: &[FlowKey<A>],
    rules: &mut [u32; BURST],
) {
    classify::<A, Avx2>(generation, family, keys, rules);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl,popcnt,bmi1,bmi2")]
fn classify_avx512<A: FlowAddress>(
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
fn classify<A: FlowAddress, I: Instructions>(
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
    find.find::<I>(count, key, |at, interval| all[at][0] = interval);
    let find = search::<A::Node>(generation, destination);
    let key = |at: usize| A::Node::key(keys[at].destination.number());
    find.find::<I>(count, key, |at, interval| all[at][1] = interval);
    let find = search::<Node4>(generation, source_port);
    let key = |at: usize| Node4::key(keys[at].source_port.into());
    find.find::<I>(count, key, |at, interval| all[at][2] = interval);
    let find = search::<Node4>(generation, destination_port);
    let key = |at: usize| Node4::key(keys[at].destination_port.into());
    find.find::<I>(count, key, |at, interval| all[at][3] = interval);
    if let [protocols, tags] = generation.array::<[u16; 256]>(family.octets) {
        for (intervals, key) in all.iter_mut().zip(keys) {
            intervals[4] = protocols[usize::from(key.protocol)];
            intervals[5] = tags[usize::from(key.tag)];
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
    let (mut chosen, mut chosen_count) = ([0_u8; BURST], 0);
    for (index, rule) in rules.iter().enumerate().take(*count) {
        chosen[chosen_count] = index as u8;
        chosen_count += usize::from(*rule > root.first_rule);
    }
    let chosen = &chosen[..chosen_count.min(BURST)];
    let mut at = [root.entry; BURST];
    if root.entry.is_inner() {
        descend(entries, intervals, chosen, &mut at);
    }
    for index in chosen {
        let index = usize::from(*index) % BURST;
        let (entry, rule) = (at[index], &mut rules[index]);
        let first = entry.base as usize;
        let leaf = if entry.is_inner() { 0 } else { usize::from(entry.low) };
        for block in blocks.get(first..first + leaf).unwrap_or_default() {
            if block.rules[0] >= *rule {
                break; // a rule of an earlier tree decides
            }
            let found = I::first_match(block, &intervals[index]);
            if let Some(found) = block.rules.get(found) {
                *rule = (*rule).min(*found);
                break;
            }
        }
    }
}

/// Follows the entries of a tree to a leaf for each chosen packet.
#[inline(always)]
fn descend(
    entries: &[Entry],
    intervals: &[Intervals; BURST],
    chosen: &[u8],
    at: &mut [Entry; BURST],
) {
    // Indexes of the packets that have not reached a leaf.
    let mut open = [0; BURST];
    open[..chosen.len()].copy_from_slice(chosen);
    let mut left = chosen.len();
    for _ in 0..=DEPTH {
        let mut still = 0;
        for next in 0..left {
            let index = open[next];
            let packet = usize::from(index) % BURST;
            let child = at[packet].child(&intervals[packet]);
            at[packet] = entries.get(child).copied().unwrap_or_default();
            open[still] = index;
            still += usize::from(at[packet].is_inner());
        }
        left = still;
        if left == 0 {
            break;
        }
    }
}
