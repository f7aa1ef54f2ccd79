//! The cost of a firewall with NAT beside Linux: of the kernel tier, of a lane on AF_XDP, and of
//! new connections.

use crate::Result;
use crate::device::connection_router::{ConnectionRouter, Counted, Firewall};
use crate::device::cpu_time::{pin, undisturbed};
use crate::device::nat_router::{NatRouter, Work};
use crate::device::router_links::CPU;
use crate::device::veth_pair::in_namespace;
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::slices::{Pairs, pair};

/// Numbers of flows, and the bound of the cost in relation to masquerade of Linux.
const FLOWS: [(u32, f64); 2] = [(1_024, 1.0 / 4.0), (65_536, 1.0 / 3.0)];
/// Bound of a lane's cost in relation to masquerade of Linux.
const LANE_BOUND: f64 = 1.0;
/// Bound of the cost of new connections in relation to Linux alone.
const NEW_BOUND: f64 = 1.05;
/// Lengths of frames with the frame check sequence.
const LENGTHS: [usize; 4] = [64, 128, 256, 512];
/// Pairs of slices after which both routers of connections are others: where the memory of one
/// happens to lie changes its cost by a few per cent, for as long as it exists.
const PAIRS_OF_ROUTERS: usize = 4;
const RIVALS: [Work; 3] = [Work::Masquerade, Work::Tracking, Work::Forwarding];

/// Compares the kernel tier with Linux, by the number of flows and the length of frames.
///
/// # Errors
/// Returns an error if the kernel refuses something, or packets are lost.
pub fn firewall(report: &mut Report, options: &Options) -> Result<()> {
    for (flows, bound) in FLOWS {
        report.comparisons.extend(measure(&|| compare_tier(flows, bound, options))?);
    }
    Ok(())
}

/// Compares a lane on AF_XDP with Linux, by the number of flows and the length of frames.
///
/// # Errors
/// As `firewall`.
pub fn firewall_lane(report: &mut Report, options: &Options) -> Result<()> {
    for (flows, _) in FLOWS {
        report.comparisons.extend(measure(&|| compare_lane(flows, options))?);
    }
    Ok(())
}

/// Compares the cost of new connections with the kernel tier and by Linux alone.
///
/// # Errors
/// As `firewall`.
pub fn firewall_connections(report: &mut Report, options: &Options) -> Result<()> {
    report.comparisons.extend(measure(&|| compare_connections(options))?);
    Ok(())
}

/// Compares the cost of new connections under rules by which they are fast once they have grown.
///
/// # Errors
/// As `firewall`.
pub fn firewall_grown(report: &mut Report, options: &Options) -> Result<()> {
    report.comparisons.extend(measure(&|| Ok(vec![GROWN.compare(options)?]))?);
    Ok(())
}

fn measure(body: &(dyn Fn() -> Result<Vec<Comparison>> + Sync)) -> Result<Vec<Comparison>> {
    in_namespace(|| {
        pin(CPU);
        undisturbed(body)
    })
}

fn compare_tier(flows: u32, bound: f64, options: &Options) -> Result<Vec<Comparison>> {
    let mut comparisons = Vec::new();
    for rival in RIVALS {
        let bound = (rival == Work::Masquerade).then_some(bound);
        let mut duel = Duel::new([Work::KernelTier, rival], flows)?;
        comparisons.extend(duel.compare(bound, options)?);
    }
    Ok(comparisons)
}

fn compare_lane(flows: u32, options: &Options) -> Result<Vec<Comparison>> {
    let mut duel = Duel::new([Work::Lane, Work::Masquerade], flows)?;
    duel.compare(Some(LANE_BOUND), options)
}

/// Two routers with as many flows.
struct Duel {
    works: [Work; 2],
    flows: u32,
    ours: NatRouter,
    rival: NatRouter,
}

impl Duel {
    fn new(works: [Work; 2], flows: u32) -> Result<Self> {
        let (ours, rival) = (NatRouter::new(works[0], flows)?, NatRouter::new(works[1], flows)?);
        Ok(Self { works, flows, ours, rival })
    }

    /// Compares both by the length of frames.
    fn compare(&mut self, bound: Option<f64>, options: &Options) -> Result<Vec<Comparison>> {
        let (flows, works) = (self.flows, self.works);
        let mut comparisons = Vec::new();
        for length in LENGTHS {
            self.ours.set_length(length);
            self.rival.set_length(length);
            let mut pairs = Pairs::default();
            for number in 0..options.effort.pairs {
                options.tell(&format!("firewall, {flows} flows, {length} B, {works:?}"), number);
                pair(&mut pairs, options.effort.slice / 2, &mut self.ours, &mut self.rival)?;
            }
            let name = format!("UDP of {length} B between veth pairs, {flows} flows");
            let names = [name, works[0].name().to_owned(), works[1].name().to_owned()];
            comparisons.push(Comparison::new(names, pairs, Kind::Ratio, bound));
        }
        Ok(comparisons)
    }
}

/// New connections by a firewall and by a rival.
struct Connections {
    firewalls: [Firewall; 2],
    counted: Counted,
    names: [&'static str; 2],
    bound: Option<f64>,
}

/// Short connections under rules for those that have grown.
const GROWN: Connections = Connections {
    firewalls: [Firewall::GrownTier, Firewall::GrownLinux],
    counted: Counted::Packets,
    names: ["kernel tier, once grown", "Linux, same rules"],
    bound: Some(NEW_BOUND),
};

impl Connections {
    fn compare(&self, options: &Options) -> Result<Comparison> {
        let [ours, theirs] = self.names;
        let [first, second] = self.firewalls;
        let numbers = Vec::from_iter(0..options.effort.pairs);
        let mut pairs = Pairs::default();
        for numbers in numbers.chunks(PAIRS_OF_ROUTERS) {
            let mut router = ConnectionRouter::new(first, self.counted)?;
            let mut rival = ConnectionRouter::new(second, self.counted)?;
            for number in numbers {
                options.tell(&format!("firewall, new connections, {ours}, {theirs}"), *number);
                pair(&mut pairs, options.effort.slice, &mut router, &mut rival)?;
            }
        }
        let name = "New TCP connections of 8 packets between veth pairs".to_owned();
        let names = [name, ours.to_owned(), theirs.to_owned()];
        Ok(Comparison::new(names, pairs, Kind::Ratio, self.bound))
    }
}

/// Compares the cost of a connection of eight packets. The slow path works on another CPU: without
/// it the ratio is that of the rates of new connections that a CPU of the packets' way manages.
fn compare_connections(options: &Options) -> Result<Vec<Comparison>> {
    let (same, bound) = ("Linux, same rules", Some(NEW_BOUND));
    let of_packets = |firewall, ours| Connections {
        firewalls: [firewall, Firewall::Linux],
        counted: Counted::Packets,
        names: [ours, same],
        bound,
    };
    let with_slow_path = |firewall, ours| Connections {
        counted: Counted::SlowPath,
        bound: None,
        ..of_packets(firewall, ours)
    };
    // Growth is a condition of ours: a firewall without fast connections does not ask for it.
    let at_once = |row: Connections| Connections {
        firewalls: [row.firewalls[0], Firewall::Linux],
        names: [row.names[0], "Linux, marks at once"],
        ..row
    };
    let rows = [
        of_packets(Firewall::Tier, "kernel tier"),
        of_packets(Firewall::QuietTier, "kernel tier, fewer events"),
        GROWN,
        at_once(GROWN),
        with_slow_path(Firewall::Tier, "kernel tier + slow path"),
        with_slow_path(Firewall::QuietTier, "the same, fewer events"),
        at_once(with_slow_path(Firewall::GrownTier, "the same, once grown")),
        // What is left if Linux reports nothing, and of that what the hook and the headers take.
        Connections { bound: None, ..of_packets(Firewall::EmptyTier, "kernel tier, no events") },
        Connections { bound: None, ..of_packets(Firewall::PausedTier, "kernel tier, paused") },
    ];
    rows.iter().map(|row| row.compare(options)).collect()
}
