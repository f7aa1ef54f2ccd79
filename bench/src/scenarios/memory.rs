//! The whole loop on a memory port, against plain C.

use crate::Result;
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;

/// Upper bound of the difference to the plain loop, in nanoseconds.
const BOUND: f64 = 1.0;

/// Compares the whole loop on a memory port with plain C.
///
/// # Errors
/// Returns an error if there is not enough memory.
pub fn memory(report: &mut Report, options: &Options) -> Result<()> {
    let bursts = [32, 8, 1];
    let tell = |number| options.tell("memory port", number);
    let results = crate::device::memory_lane::compare(options.effort, &bursts, 60, tell)?;
    for (burst, pairs) in bursts.into_iter().zip(results) {
        let work = format!("macswap in memory, burst {burst}");
        let names = [work, "whole loop".to_owned(), "plain C".to_owned()];
        let bound = (burst == 32).then_some(BOUND);
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
    }
    Ok(())
}
