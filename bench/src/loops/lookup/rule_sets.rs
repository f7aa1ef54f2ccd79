//! Rule sets and traces in the manner of ClassBench (Taylor, Turner: "ClassBench: A Packet
//! Classification Benchmark", 2007), from a generator with a fixed seed.
//!
//! The three flavours differ as its seed files do. Access lists (ACL) have specific destinations
//! and destination ports. Firewalls (FW) have many wildcards in the addresses and ranges in both
//! ports. IP chains (IPC) are a mixture with specific pairs of addresses.

use std::collections::HashSet;

use super::workload::{Random, Workload};

/// Flavour of a rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Access list of a router.
    Acl,
    /// Rules of a firewall.
    Firewall,
    /// IP chain.
    IpChain,
}

/// Ports of a rule, drawn by weight.
#[derive(Clone, Copy, Debug)]
enum Ports {
    /// All ports.
    Any,
    /// 1024 to 65535.
    High,
    /// 0 to 1023.
    Low,
    /// A range.
    Range,
    /// A well-known port.
    Exact,
}

/// Shape of a flavour: values and their weights.
struct Shape {
    source: &'static [(u32, u64)],
    destination: &'static [(u32, u64)],
    source_ports: &'static [(Ports, u64)],
    destination_ports: &'static [(Ports, u64)],
    /// Protocols; 256 is any.
    protocols: &'static [(u32, u64)],
}

const ACL: Shape = Shape {
    source: &[(0, 18), (16, 4), (20, 6), (22, 8), (23, 8), (24, 20), (27, 6), (30, 6), (32, 24)],
    destination: &[(0, 1), (16, 3), (20, 4), (22, 6), (24, 22), (28, 8), (30, 8), (32, 48)],
    source_ports: &[(Ports::Any, 98), (Ports::High, 1), (Ports::Exact, 1)],
    destination_ports: &[
        (Ports::Any, 28),
        (Ports::High, 6),
        (Ports::Range, 10),
        (Ports::Exact, 56),
    ],
    protocols: &[(6, 75), (17, 15), (1, 4), (256, 6)],
};

const FIREWALL: Shape = Shape {
    source: &[(0, 38), (8, 1), (16, 4), (24, 14), (27, 4), (30, 4), (32, 35)],
    destination: &[(0, 28), (8, 1), (16, 4), (24, 14), (27, 4), (30, 4), (32, 45)],
    source_ports: &[
        (Ports::Any, 70),
        (Ports::High, 14),
        (Ports::Low, 2),
        (Ports::Range, 3),
        (Ports::Exact, 11),
    ],
    destination_ports: &[
        (Ports::Any, 32),
        (Ports::High, 12),
        (Ports::Low, 3),
        (Ports::Range, 10),
        (Ports::Exact, 43),
    ],
    protocols: &[(6, 55), (17, 24), (1, 7), (47, 2), (50, 2), (256, 10)],
};

const IP_CHAIN: Shape = Shape {
    source: &[(0, 10), (12, 2), (16, 6), (20, 6), (24, 26), (27, 8), (30, 6), (32, 36)],
    destination: &[(0, 8), (12, 2), (16, 6), (20, 6), (24, 26), (27, 8), (30, 6), (32, 38)],
    source_ports: &[(Ports::Any, 74), (Ports::High, 6), (Ports::Range, 4), (Ports::Exact, 16)],
    destination_ports: &[(Ports::Any, 44), (Ports::High, 8), (Ports::Range, 8), (Ports::Exact, 40)],
    protocols: &[(6, 52), (17, 26), (1, 6), (50, 2), (256, 14)],
};

/// Well-known ports in rules, the frequent ones first.
const WELL_KNOWN: [u16; 24] = [
    80, 443, 53, 25, 22, 21, 123, 161, 23, 110, 143, 179, 389, 445, 514, 993, 1433, 1521, 1812,
    3306, 3389, 5060, 8080, 8443,
];

/// Rule for IPv4; ranges are pairs of the first and the last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRule {
    /// Source and destination address.
    pub addresses: [u32; 2],
    /// Lengths of their prefixes.
    pub lengths: [u32; 2],
    /// Source and destination ports.
    pub ports: [[u16; 2]; 2],
    /// Range of protocols.
    pub protocols: [u8; 2],
}

impl FlowRule {
    /// Number of bytes of a rule in a workload.
    pub const BYTES: usize = 28;

    fn bits(&self) -> u32 {
        let width = |range: [u16; 2]| 16 - u32::from(range[1] - range[0]).trailing_ones();
        let ports: u32 = self.ports.iter().map(|range| width(*range)).sum();
        let protocol = if self.protocols[0] == self.protocols[1] { 8 } else { 0 };
        self.lengths[0] + self.lengths[1] + ports + protocol
    }

    fn write(&self, to: &mut Vec<u8>) {
        for word in self.addresses.into_iter().chain(self.lengths) {
            to.extend_from_slice(&word.to_ne_bytes());
        }
        self.ports.iter().flatten().for_each(|port| to.extend_from_slice(&port.to_ne_bytes()));
        to.extend_from_slice(&self.protocols);
        to.extend_from_slice(&[0; 2]);
    }

    /// Reads a rule of a workload.
    #[must_use]
    pub fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let port = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            addresses: [word(0), word(4)],
            lengths: [word(8), word(12)],
            ports: [[port(16), port(18)], [port(20), port(22)]],
            protocols: [bytes[24], bytes[25]],
        }
    }
}

/// Packet of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Source and destination address.
    pub addresses: [u32; 2],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// IP protocol.
    pub protocol: u8,
}

impl Flow {
    /// Reads a query of a workload.
    #[must_use]
    pub fn read(query: [u8; 16]) -> Self {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| query[at + byte]));
        let port = |at: usize| u16::from_be_bytes([query[at], query[at + 1]]);
        Self { addresses: [word(0), word(4)], ports: [port(8), port(10)], protocol: query[12] }
    }
}

/// Creates a workload of rules in order of priority and one set of queries. A query has 16 bytes:
/// source and destination address, source and destination port, all in network byte order, the
/// protocol, and zeros. Each query is a random packet of a random rule, so nearly all queries match
/// and no two are of the same flow.
#[must_use]
pub fn rule_set(flavour: Flavour, count: usize, queries: usize) -> Workload {
    let mut random = Random::new(0xAC1 + count as u64 + ((flavour as u64) << 32));
    let rules = rules(flavour, count, &mut random);
    let mut entries = Vec::with_capacity(count * FlowRule::BYTES);
    rules.iter().for_each(|rule| rule.write(&mut entries));
    let mut set = Vec::with_capacity(queries * 16);
    for _ in 0..queries {
        let rule = rules[random.below(count as u64) as usize];
        for (address, length) in rule.addresses.into_iter().zip(rule.lengths) {
            let host = (random.next() as u32).checked_shr(length).unwrap_or(0);
            set.extend_from_slice(&(address | host).to_be_bytes());
        }
        for [first, last] in rule.ports {
            let port = first + random.below(u64::from(last - first) + 1) as u16;
            set.extend_from_slice(&port.to_be_bytes());
        }
        let [first, last] = rule.protocols;
        let protocol = if first == last { first } else { [6, 17, 1][random.below(3) as usize] };
        set.extend_from_slice(&[protocol, 0, 0, 0]);
    }
    Workload { count, entries, query: 16, sets: vec![set] }
}

fn rules(flavour: Flavour, count: usize, random: &mut Random) -> Vec<FlowRule> {
    let shape = match flavour {
        Flavour::Acl => ACL,
        Flavour::Firewall => FIREWALL,
        Flavour::IpChain => IP_CHAIN,
    };
    // Networks of an organization, and of its partners.
    let networks: Vec<u32> = (0..count / 12 + 4)
        .map(|_| {
            let top = [10_u32, 172, 192, 62, 81, 130, 145, 203][random.below(8) as usize];
            top << 24 | (random.next() as u32 & 0x003F_FF00)
        })
        .collect();
    let mut seen = HashSet::new();
    let mut rules = Vec::with_capacity(count);
    while rules.len() + 1 < count {
        let mut side = |lengths: &[(u32, u64)]| {
            let length = random.weighted(lengths);
            let network = networks[random.below(networks.len() as u64) as usize];
            let address = network | random.next() as u32 & 0xFF;
            (address & u32::MAX.checked_shl(32 - length).unwrap_or(0), length)
        };
        let (source, destination) = (side(shape.source), side(shape.destination));
        let protocol = random.weighted(shape.protocols);
        let has_ports = matches!(protocol, 6 | 17);
        let mut ports = |all| if has_ports { draw_ports(all, random) } else { [0, u16::MAX] };
        let rule = FlowRule {
            addresses: [source.0, destination.0],
            lengths: [source.1, destination.1],
            ports: [ports(shape.source_ports), ports(shape.destination_ports)],
            protocols: if protocol == 256 { [0, 255] } else { [protocol as u8; 2] },
        };
        if rule.bits() > 8 && seen.insert(rule) {
            rules.push(rule);
        }
    }
    // The more specific a rule is the earlier it comes, as administrators write lists, with some
    // disorder.
    rules.sort_by_cached_key(|rule| std::cmp::Reverse(rule.bits() + random.below(12) as u32));
    let (ports, protocols) = ([[0, u16::MAX]; 2], [0, 255]);
    rules.push(FlowRule { addresses: [0; 2], lengths: [0; 2], ports, protocols });
    rules
}

fn draw_ports(all: &[(Ports, u64)], random: &mut Random) -> [u16; 2] {
    let numbers: Vec<(u32, u64)> =
        all.iter().zip(0..).map(|((_, weight), number)| (number, *weight)).collect();
    match all[random.weighted(&numbers) as usize].0 {
        Ports::Any => [0, u16::MAX],
        Ports::High => [1024, u16::MAX],
        Ports::Low => [0, 1023],
        Ports::Range => {
            let first = 1024 + random.below(600) as u16 * 100;
            [first, first + [9, 15, 99, 999][random.below(4) as usize]]
        }
        Ports::Exact => {
            let known = WELL_KNOWN.len() as u64;
            // The lower of two draws, so that the first ones are frequent; one in eight is any.
            let draw = random.below(known).min(random.below(known)) as usize;
            let port = WELL_KNOWN[draw];
            let port = if random.below(8) == 0 { random.next() as u16 } else { port };
            [port, port]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_reproducible_and_have_the_shape_of_their_flavour() {
        for flavour in [Flavour::Acl, Flavour::Firewall, Flavour::IpChain] {
            let workload = rule_set(flavour, 1000, 512);
            assert_eq!(workload.entries, rule_set(flavour, 1000, 512).entries);
            let rules = workload.entries.as_chunks().0.iter().map(FlowRule::read);
            let wild = rules.filter(|rule| rule.lengths[0] == 0).count();
            let expected = match flavour {
                Flavour::Acl => 130..230,
                Flavour::Firewall => 290..430,
                Flavour::IpChain => 70..140,
            };
            assert!(expected.contains(&wild), "{flavour:?}: {wild}");
        }
    }
}
