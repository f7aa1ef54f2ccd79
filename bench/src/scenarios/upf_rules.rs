//! The cost of the user plane by the rules of a session.

use crate::Result;
use crate::loops::user_plane::{Hit, Shape};
use crate::report::Report;
use crate::scenarios::Options;
use crate::scenarios::upf::{Population, over_macswap};

/// Sessions whose packets arrive.
const SESSIONS: Population = Population { count: 10_000, name: "10k" };
/// Upper bound of the difference to macswap in nanoseconds with 8 PDRs of 4 filters.
const EIGHT: f64 = 150.0;
/// The same with 16 PDRs of 8 filters.
const SIXTEEN: f64 = 250.0;

/// Compares the user plane with macswap on a memory port, by the number of PDRs and SDF filters and
/// by the filter that packets match.
///
/// # Errors
/// Returns an error if the kernel gives no namespace or there is not enough memory.
pub fn upf_rules(report: &mut Report, options: &Options) -> Result<()> {
    let mut rows = vec![(Shape::Simple, None)];
    for (shape, bound) in [(Shape::EIGHT, EIGHT), (Shape::SIXTEEN, SIXTEEN)] {
        let hits = [Hit::Any, Hit::First, Hit::Middle, Hit::Last, Hit::None];
        rows.extend(hits.map(|hit| (shape.hitting(hit), Some(bound))));
        rows.push((shape.with_prefixes(), Some(bound)));
    }
    for (shape, bound) in rows {
        eprintln!("upf-rules, {}", shape.name());
        report.comparisons.extend(over_macswap(SESSIONS, shape, bound, options)?);
    }
    Ok(())
}
