//! Tuple space search (Srinivasan, Suri, Varghese, 1999) as Open vSwitch has it: measured beside
//! the classifier of Fastlane, which does not use it.
//!
//! Rules with the same lengths of prefixes and the same exact fields share a hash table. Ranges of
//! ports are compared in the chain of an entry. Tables are visited by the priority of their first
//! rule, until no later one can have an earlier rule.

use hashbrown::HashMap;

use crate::loops::lookup::rule_sets::{Flow, FlowRule};

/// Masked fields of a rule or packet: addresses, ports and protocol in three words.
type Key = [u64; 2];

/// Masks that the rules of a table have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tuple {
    addresses: u64,
    rest: u64,
}

struct Table {
    tuple: Tuple,
    /// Number of the first rule.
    first: u32,
    /// Rules by key, in order of priority.
    entries: HashMap<Key, Vec<u32>>,
}

/// Tables of all tuples.
pub(super) struct TupleSpace {
    rules: Vec<FlowRule>,
    tables: Vec<Table>,
}

fn pack(addresses: [u32; 2], ports: [u16; 2], protocol: u8) -> Key {
    let [source, destination] = addresses.map(u64::from);
    let [from, to] = ports.map(u64::from);
    [source << 32 | destination, from << 32 | to << 16 | u64::from(protocol)]
}

fn tuple(rule: &FlowRule) -> Tuple {
    let mask = |side: usize| !u32::MAX.checked_shr(rule.lengths[side]).unwrap_or(0);
    let exact = |[first, last]: [u16; 2]| if first == last { u16::MAX } else { 0 };
    let protocol = if rule.protocols[0] == rule.protocols[1] { u8::MAX } else { 0 };
    let [addresses, rest] = pack([mask(0), mask(1)], rule.ports.map(exact), protocol);
    Tuple { addresses, rest }
}

impl Tuple {
    fn key(self, [addresses, rest]: Key) -> Key {
        [addresses & self.addresses, rest & self.rest]
    }
}

impl TupleSpace {
    pub(super) fn new(rules: &[FlowRule]) -> Self {
        let mut tables: Vec<Table> = Vec::new();
        let mut numbers = HashMap::new();
        for (rule, number) in rules.iter().zip(0..) {
            let tuple = tuple(rule);
            let table = *numbers.entry(tuple).or_insert_with(|| {
                tables.push(Table { tuple, first: number, entries: HashMap::new() });
                tables.len() - 1
            });
            let ports = rule.ports.map(|[first, _]| first);
            let key = tuple.key(pack(rule.addresses, ports, rule.protocols[0]));
            tables[table].entries.entry(key).or_default().push(number);
        }
        Self { rules: rules.to_vec(), tables }
    }

    /// Returns 1 + the number of the first rule, or 0.
    pub(super) fn find(&self, flow: &Flow) -> u32 {
        let packed = pack(flow.addresses, flow.ports, flow.protocol);
        let mut best = u32::MAX;
        for table in &self.tables {
            if table.first > best {
                break;
            }
            let Some(chain) = table.entries.get(&table.tuple.key(packed)) else { continue };
            let fits = |rule: &&u32| {
                let ranges = self.rules[**rule as usize].ports.iter().zip(flow.ports);
                ranges.into_iter().all(|(range, port)| (range[0]..=range[1]).contains(&port))
            };
            best = chain.iter().find(fits).map_or(best, |rule| best.min(*rule));
        }
        best.wrapping_add(1)
    }
}
