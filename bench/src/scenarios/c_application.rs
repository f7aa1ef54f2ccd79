//! The macswap in C against the macswap in Rust.

use crate::Result;
use crate::device::application::{Application, ApplicationKind};
use crate::device::memory_lane::FRAMES;
use crate::report::{Comparison, Kind, Report};
use crate::rivals::macswap_in_c::Compiled;
use crate::scenarios::Options;
use crate::slices::{Contender, Effort, Pairs, pair};
use serde_json::{Value, json};

/// Upper bound of the ratio of C to Rust.
const BOUND: f64 = 1.02;

/// Compares the macswap in C with the macswap in Rust.
///
/// # Errors
/// Returns an error if the C program cannot be compiled or a program does not run.
pub fn in_c(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    let tell = |number| options.tell("macswap in C and in Rust", number);
    let pairs = compare(&compiled, &memory_port(), 32, options.effort, tell)?;
    let names = ["macswap in memory, burst 32", "in C", "in Rust"].map(str::to_owned);
    report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, Some(BOUND)));
    Ok(())
}

/// Returns the configuration of a memory port that always has packets.
#[must_use]
pub fn memory_port() -> Value {
    json!({ "memory": { "fill": { "frames": FRAMES, "length": 60 } } })
}

/// Measures `effort.pairs` pairs on one driver, as written in a configuration, with bursts of
/// `burst`. The C program is ours and the Rust program is the rival. Both are restarted for each
/// pair, so that no result depends on page placement.
///
/// # Errors
/// Returns an error if a program does not start, or ends.
pub fn compare(
    compiled: &Compiled,
    driver: &Value,
    burst: usize,
    effort: Effort,
    mut progress: impl FnMut(usize),
) -> Result<Pairs> {
    let lanes = json!({ "burst": burst });
    let mut pairs = Pairs::default();
    for number in 0..effort.pairs {
        progress(number);
        let start = |which: &ApplicationKind| Application::start(which, driver, &lanes)?.looping();
        let mut ours = start(&ApplicationKind::Other(compiled.program()))?;
        let mut rival = start(&ApplicationKind::Macswap)?;
        ours.run(effort.slice / 20)?;
        rival.run(effort.slice / 20)?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
    }
    Ok(pairs)
}
