//! The cost of the user plane.

use crate::Result;
use crate::device::veth_pair::{Veth, in_namespace};
use crate::loops::user_plane::{Direction, RouteMirror, Sessions, Shape, compare};
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::router::routed_lane::effort;

/// Upper bounds of the difference to macswap in nanoseconds: with 10,000 and with 1,000,000
/// sessions.
const BOUNDS: [f64; 2] = [50.0, 75.0];

const DIRECTIONS: [Direction; 2] = [Direction::Uplink, Direction::Downlink];

/// Compares the user plane with macswap on a memory port, by direction, sessions and their rules.
///
/// # Errors
/// Returns an error if the kernel gives no namespace or there is not enough memory.
pub fn upf(report: &mut Report, options: &Options) -> Result<()> {
    let rows = [
        (1, "1", Shape::Simple, None),
        (10_000, "10k", Shape::Simple, Some(BOUNDS[0])),
        (100_000, "100k", Shape::Simple, None),
        (1_000_000, "1M", Shape::Simple, Some(BOUNDS[1])),
        (10_000, "10k", Shape::EIGHT, None),
    ];
    let title = "CPU time per packet over that of macswap, in memory, 2 PDRs, ns";
    let mut figure = Figure::new("upf-cost", title, "Sessions", Style::Lines);
    for (count, name, shape, bound) in rows {
        eprintln!("upf, {name} sessions, {}", shape.name());
        let comparisons = over_macswap(Population { count, name }, shape, bound, options)?;
        for (comparison, direction) in comparisons.iter().zip(DIRECTIONS) {
            let pairs = comparison.ours_ns.iter().zip(&comparison.rival_ns);
            let costs = pairs.map(|(ours, rival)| ours - rival);
            // The other shapes cost ten times as much; the table shows them.
            costs
                .filter(|_| shape == Shape::Simple)
                .for_each(|cost| figure.add(direction.name(), name, cost));
        }
        report.comparisons.extend(comparisons);
    }
    report.figures.push(figure);
    Ok(())
}

/// Number of sessions, and its name in results.
#[derive(Clone, Copy)]
pub(super) struct Population {
    pub(super) count: u32,
    pub(super) name: &'static str,
}

/// Compares the user plane with macswap, by direction.
///
/// # Errors
/// Returns an error if the kernel gives no namespace or there is not enough memory.
pub(super) fn over_macswap(
    Population { count, name }: Population,
    shape: Shape,
    bound: Option<f64>,
    options: &Options,
) -> Result<Vec<Comparison>> {
    in_namespace(|| {
        let veth = Veth::new(0, 60, false)?;
        let ways = RouteMirror::new(&veth)?;
        let sessions = Sessions::new(count, shape)?;
        let mut comparisons = Vec::new();
        for direction in DIRECTIONS {
            let pairs = compare(&ways, &sessions, direction, effort(options.effort))?;
            let work = format!(
                "{} in memory, burst 32, {name} sessions, {}",
                direction.name(),
                shape.name()
            );
            let names = [work, "upf".to_owned(), "macswap".to_owned()];
            comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
        }
        Ok(comparisons)
    })
}
