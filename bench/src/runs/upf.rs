//! What the user plane costs.

use super::Options;
use crate::Result;
use crate::report::{Comparison, Kind, Report};
use crate::router::effort;
use crate::upf::{Direction, Sessions, Shape, Ways, compare};
use crate::veth::{Veth, in_namespace};

/// By how much, in ns, the user plane may cost more than macswap: at 10,000 sessions and a million.
const BOUNDS: [f64; 2] = [60.0, 100.0];

/// The user plane against macswap on a memory port, by direction, sessions and their rules.
///
/// # Errors
/// When the kernel gives no namespace, or there is no memory.
pub fn upf(report: &mut Report, options: &Options) -> Result<()> {
    let rows = [
        (1, "1", Shape::Simple, None),
        (10_000, "10k", Shape::Simple, Some(BOUNDS[0])),
        (100_000, "100k", Shape::Simple, None),
        (1_000_000, "1M", Shape::Simple, Some(BOUNDS[1])),
        (10_000, "10k", Shape::Rich, None),
    ];
    for (count, name, shape, bound) in rows {
        eprintln!("upf, {name} sessions, {}", shape.name());
        let comparisons = in_namespace(|| {
            let veth = Veth::new(0, 60, false)?;
            let ways = Ways::new(&veth)?;
            let sessions = Sessions::new(count, shape)?;
            let mut comparisons = Vec::new();
            for direction in [Direction::Uplink, Direction::Downlink] {
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
        });
        report.comparisons.extend(comparisons?);
    }
    Ok(())
}
