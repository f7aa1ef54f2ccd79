//! What routing costs.

use super::Options;
use crate::Result;
use crate::report::{Comparison, Kind, Report};
use crate::router::{Routed, compare, effort};
use crate::veth::{Veth, in_namespace};

/// The router against macswap on a memory port, by routes and by destinations.
///
/// # Errors
/// When the kernel gives no namespace, or does not take the routes.
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
    Ok(())
}
