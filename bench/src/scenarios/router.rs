//! The cost of routing.

pub mod routed_lane;

use crate::Result;
use crate::device::veth_pair::{Veth, in_namespace};
use crate::loops::flow_lane::{FlowSet, compare_flows, compare_prefetch};
use crate::loops::flow_memif::compare_over_memif;
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::router::routed_lane::{Extra, Routed, compare, compare_with, effort};

/// Compares the router with macswap on a memory port, by routes and by destinations.
///
/// # Errors
/// Returns an error if the kernel gives no namespace or refuses the routes.
pub fn router(report: &mut Report, options: &Options) -> Result<()> {
    for (routes, name) in [(10_000, "10k"), (100_000, "100k"), (1_000_000, "1M")] {
        eprintln!("router, {name} routes");
        let comparisons = in_namespace(|| {
            let veth = Veth::new(0, 60, false)?;
            let routed = Routed::new(&veth, routes)?;
            let mut comparisons = Vec::new();
            for (destinations, to) in [(1, "1"), (1_000, "1k"), (100_000, "100k")] {
                let pairs = compare(&routed, destinations, effort(options.effort))?;
                let work = format!("IPv4 in memory, burst 32, {name} routes, {to} destinations");
                let names = [work, "router".to_owned(), "macswap".to_owned()];
                comparisons.push(Comparison::new(names, pairs, Kind::Difference, None));
            }
            Ok(comparisons)
        });
        report.comparisons.extend(comparisons?);
    }
    extras(report, options)
}

/// Compares flows with NAT with macswap on a memory port and over memif, by the number of flows,
/// and with the same router without prefetching.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn flows(report: &mut Report, options: &Options) -> Result<()> {
    for (flows, name, bound) in
        [(1_024, "1k", Some(60.0)), (65_536, "64k", None), (1_000_000, "1M", Some(120.0))]
    {
        eprintln!("router, {name} flows with NAT");
        let (set, effort) = (FlowSet::new(flows)?, effort(options.effort));
        let work = format!("UDP in memory, burst 32, {name} flows with NAT");
        let pairs = compare_flows(&set, effort)?;
        let names = [work.clone(), "router".to_owned(), "macswap".to_owned()];
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
        let pairs = compare_prefetch(&set, effort)?;
        let names = [work, "router, prefetch off".to_owned(), "router".to_owned()];
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, None));
        let pairs = compare_over_memif(&set, effort)?;
        let work = format!("UDP over native memif, {name} flows with NAT");
        let names = [work, "router".to_owned(), "macswap".to_owned()];
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
    }
    Ok(())
}

/// Measures the additional cost of the access list and of the counters by route.
fn extras(report: &mut Report, options: &Options) -> Result<()> {
    eprintln!("router, access list and counters by route");
    let effort = effort(options.effort);
    let comparisons = in_namespace(|| {
        let veth = Veth::new(0, 60, false)?;
        let routed = Routed::new(&veth, 10_000)?;
        let mut comparisons = Vec::new();
        for rules in [1, 16, 256] {
            let pairs = compare_with(&routed, Extra::Rules(rules), 1_000, effort)?;
            let work = "IPv4 in memory, burst 32, 10k routes, 1k destinations".to_owned();
            let names = [work, format!("router, {rules} rules"), "router".to_owned()];
            comparisons.push(Comparison::new(names, pairs, Kind::Difference, None));
        }
        Ok(comparisons)
    });
    report.comparisons.extend(comparisons?);
    let comparisons = in_namespace(|| {
        let veth = Veth::new(0, 60, false)?;
        let routed = Routed::counted(&veth, 100_000)?;
        let mut comparisons = Vec::new();
        for (destinations, to) in [(1, "1"), (1_000, "1k"), (100_000, "100k")] {
            let pairs = compare_with(&routed, Extra::Counts, destinations, effort)?;
            let work = format!("IPv4 in memory, burst 32, 100k routes, {to} destinations");
            let names = [work, "router, count-routes".to_owned(), "router".to_owned()];
            comparisons.push(Comparison::new(names, pairs, Kind::Difference, None));
        }
        Ok(comparisons)
    });
    report.comparisons.extend(comparisons?);
    Ok(())
}
