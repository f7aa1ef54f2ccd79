//! Writer of a classifier: compiles lists of rules and publishes them.

use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::classifier_reader::ClassifierReader;
use super::cuts::{Excess, Limits, Ranges, Statistics, TREES};
use super::flow_address::{Family, FlowAddress};
use super::generation::{
    AREAS, AreaWriter, FamilyHeader, GenerationHeader, Image, SEARCHED, SearchHeader,
};
use super::intervals::{Edges, MAX_INTERVALS, Node4, SearchNode};
use super::partition::trees;
use super::{FIELDS, FlowMatch};
use crate::header::Header;
use crate::slots::FreeList;
use crate::{Readers, SharedMemory, Spec, TableError, Value};

/// Maximum number of rules that a lookup compares in one tree.
const COMPARED: usize = 1024;

/// Lists of rules, each in order of priority: the first rule that matches decides.
#[derive(Clone, Copy, Debug)]
pub struct RuleList<'r, V> {
    /// Rules for IPv4 and their values.
    pub ipv4: &'r [(FlowMatch<Ipv4Addr>, V)],
    /// Rules for IPv6 and their values.
    pub ipv6: &'r [(FlowMatch<Ipv6Addr>, V)],
    /// The application's own form of the lists. A successor reads it back.
    pub source: &'r [u8],
}

/// Writer of a classifier. A classifier has one writer at a time; the session ensures this. See
/// [`ClassifierReader`] for an example.
#[derive(Debug)]
pub struct ClassifierWriter<V> {
    header: Arc<Header>,
    areas: AreaWriter,
    free: FreeList,
    readers: Arc<Readers>,
    value: PhantomData<fn(V)>,
}

impl<V: Value> ClassifierWriter<V> {
    /// Attaches as the writer of a classifier. The current list stays.
    ///
    /// # Errors
    /// Returns an error if the memory holds no classifier of this type, is mapped read-only, or has
    /// a writer already.
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        let header = Header::expect_writable(memory, 0, &Spec::classifier::<V>("", 1))?;
        let fresh = header.fresh;
        let ClassifierReader { areas, header, .. } = ClassifierReader::<V>::new(header)?;
        let areas = AreaWriter::new(&header, areas)?;
        let used: [bool; AREAS] = std::array::from_fn(|area| areas.current() == Some(area as u32));
        let free = FreeList::attach("area", &used, fresh);
        Ok(Self { header, areas, free, readers: Arc::clone(readers), value: PhantomData })
    }

    /// Replaces all lists.
    ///
    /// # Errors
    /// Returns [`Full`](TableError::Full) if there are too many rules or their compiled form needs
    /// too much memory or too many comparisons, and [`Stalled`](TableError::Stalled) if a lane
    /// delays the reuse of memory. The lists are unchanged then.
    pub fn replace(&mut self, list: &RuleList<'_, V>) -> Result<[Statistics; 2], TableError> {
        let (image, statistics) = self.compile(list)?;
        let area = self.free.take(&self.readers, self.header.name())?;
        let before = self.areas.current();
        self.areas.publish(area, &image);
        if let Some(before) = before {
            self.free.retire(before);
        }
        Ok(statistics)
    }

    fn compile(&self, list: &RuleList<'_, V>) -> Result<(Vec<u8>, [Statistics; 2]), TableError> {
        let header = &self.header;
        let (capacity, rules) = (header.spec.capacity, list.ipv4.len().max(list.ipv6.len()));
        if rules > capacity {
            return self.full(format!("{rules} rules are more than its {capacity}"));
        }
        let mut image = Image::new(header.layout.stride);
        let rules = [list.ipv4.len() as u32, list.ipv6.len() as u32];
        let mut generation = GenerationHeader { rules, ..GenerationHeader::default() };
        let made = image.append(list.source).map_err(Excess::Bytes).and_then(|source| {
            generation.source = source;
            let four = family(list.ipv4, &mut image, &mut generation.families[0])?;
            let six = family(list.ipv6, &mut image, &mut generation.families[1])?;
            Ok([four, six])
        });
        match made {
            Ok(statistics) => Ok((image.finish(&generation), statistics)),
            Err(Excess::Bytes(bytes)) => self.full(format!(
                "its rules need more than {bytes} bytes, it has {}",
                header.layout.stride
            )),
            Err(Excess::Rules(rules)) => self.full(format!(
                "{rules} rules overlap so much that a packet would be compared with all of them, \
                 the limit is {COMPARED}"
            )),
            Err(Excess::Intervals(count)) => self.full(format!(
                "its rules divide a field into {count} intervals, the limit is {MAX_INTERVALS}"
            )),
        }
    }

    fn full<T>(&self, what: String) -> Result<T, TableError> {
        Err(TableError::Full { table: self.header.name().to_owned(), what })
    }

    /// Returns the application's form of the current lists; empty before the first one.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        self.areas.generation().map_or(&[], |generation| generation.array(generation.header.source))
    }
}

/// Compiles the rules of an address family.
fn family<A: FlowAddress, V: Value>(
    list: &[(FlowMatch<A>, V)],
    image: &mut Image,
    header: &mut FamilyHeader,
) -> Result<Statistics, Excess> {
    let ranges: Vec<[[u128; 2]; FIELDS]> = list.iter().map(|(rule, _)| rule.ranges()).collect();
    let address = u128::MAX >> (128 - u32::from(A::BITS));
    let greatest = [address, address, 0xFFFF, 0xFFFF, 0xFF, 0xFF];
    let edges: [Edges; FIELDS] = std::array::from_fn(|field| {
        Edges::new(ranges.iter().map(|rule| rule[field]), greatest[field])
    });
    let intervals = edges.each_ref().map(Edges::intervals);
    if let Some(count) = intervals.into_iter().find(|count| *count > MAX_INTERVALS) {
        return Err(Excess::Intervals(count));
    }
    let rule = |ranges: &[[u128; 2]; FIELDS]| -> Ranges {
        std::array::from_fn(|field| ranges[field].map(|edge| edges[field].interval(edge)))
    };
    let rules: Vec<Ranges> = ranges.iter().map(rule).collect();
    let values: Vec<V> = list.iter().map(|(_, value)| *value).collect();
    header.values = image.append(&values).map_err(Excess::Bytes)?;
    for (field, (edges, to)) in edges.iter().zip(&mut header.searches).enumerate() {
        *to = match field {
            0 | 1 => search::<<A as Family>::Node>(edges, image)?,
            _ => search::<Node4>(edges, image)?,
        };
    }
    let octets = |edges: &Edges| -> [u16; 256] {
        std::array::from_fn(|octet| edges.interval(octet as u128))
    };
    let octets = [octets(&edges[SEARCHED]), octets(&edges[SEARCHED + 1])];
    header.octets = image.append(&octets).map_err(Excess::Bytes)?;
    let limits = Limits { compared: COMPARED, leaf: 0, bytes: image.room() };
    let trees = trees(&rules, intervals, limits)?;
    header.entries = image.append(&trees.forest.entries).map_err(Excess::Bytes)?;
    header.blocks = image.append(&trees.forest.blocks).map_err(Excess::Bytes)?;
    header.trees = trees.roots.len().min(TREES) as u64;
    header.roots[..trees.roots.len()].copy_from_slice(&trees.roots);
    Ok(trees.statistics)
}

fn search<N: SearchNode>(edges: &Edges, image: &mut Image) -> Result<SearchHeader, Excess> {
    let (nodes, levels) = edges.nodes::<N>();
    let mut header = SearchHeader { levels: levels.len() as u64, ..SearchHeader::default() };
    header.starts[..levels.len()].copy_from_slice(&levels);
    header.nodes = image.append(&nodes).map_err(Excess::Bytes)?;
    Ok(header)
}
