//! The whole loop on a memory port, against plain C.

use crate::Result;
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;

/// Goal, in nanoseconds more than the plain loop.
const BOUND: f64 = 2.0;

/// The whole loop on a memory port against plain C.
///
/// # Errors
/// When there is no memory.
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
