//! The cost of NAT in the user plane.

use crate::Result;
use crate::device::veth_pair::{Veth, in_namespace};
use crate::loops::user_plane::{Direction, Flows, RouteMirror, compare_nat};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::router::routed_lane::effort;

/// Upper bound of the difference to the user plane without NAT in nanoseconds, with 10,000 flows.
const BOUND: f64 = 30.0;

/// Compares the user plane with NAT on N6 with the one without, by direction and mappings.
///
/// # Errors
/// Returns an error if the kernel gives no namespace or there is not enough memory.
pub fn upf_nat(report: &mut Report, options: &Options) -> Result<()> {
    let rows = [
        (Flows { sessions: 10_000, each: 1 }, "10k mappings", Some(BOUND)),
        (Flows { sessions: 10_000, each: 100 }, "1M mappings", None),
    ];
    for (flows, name, bound) in rows {
        eprintln!("upf-nat, {name}");
        let comparisons = in_namespace(|| {
            let veth = Veth::new(0, 60, false)?;
            let ways = RouteMirror::new(&veth)?;
            let mut comparisons = Vec::new();
            for direction in [Direction::Uplink, Direction::Downlink] {
                let pairs = compare_nat(&ways, flows, direction, effort(options.effort))?;
                let work =
                    format!("{} in memory, burst 32, 10k sessions, {name}", direction.name());
                let names = [work, "upf with NAT".to_owned(), "upf".to_owned()];
                comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
            }
            Ok(comparisons)
        })?;
        report.comparisons.extend(comparisons);
    }
    Ok(())
}
