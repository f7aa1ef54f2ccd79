//! The cost of lookups in the tables of Fastlane, of DPDK and of crates.
//!
//! Each contender is a separate single-threaded program. It runs on request from its standard input
//! and reports its CPU time. All programs read the same file of entries and queries, and the
//! results of a pass over the queries must be equal.

mod bit_vectors;
mod classifiers;
pub mod counted_lookups;
mod crate_tables;
mod fastlane_tables;
pub mod rule_sets;
mod server;
mod subprocess;
mod tuple_space;
pub mod workload;

pub use subprocess::{Pages, TableContender};

use std::path::{Path, PathBuf};

use rustix::thread::disable_transparent_huge_pages;

use crate::Result;
use crate::rivals::dpdk_loop::Compiled;
use crate::slices::{Contender, Effort, Slice};
use subprocess::Subprocess;
use workload::{File, Workload};

/// First command line argument that turns this program into a contender: `fastlane-bench lookups
/// KIND PAGES FILE`.
pub const LOOKUPS: &str = "lookups";
/// Number of lookups in one bulk.
pub const BULK: usize = 32;
/// Number of turns of a slice, as in [`crate::slices::pair`].
const PARTS: u32 = 10;

/// Programs of the contenders.
pub struct Programs {
    /// Program on DPDK.
    pub dpdk: Compiled,
    /// Program with the tables of Fastlane and of crates: `fastlane-bench`.
    pub own: PathBuf,
}

impl Programs {
    /// Compiles the program on DPDK and finds the path of this program.
    ///
    /// # Errors
    /// Returns an error if the program cannot be compiled.
    pub fn new() -> Result<Self> {
        Ok(Self { dpdk: Compiled::lookups()?, own: std::env::current_exe()? })
    }
}

/// Results of one contender.
#[derive(Clone, Debug)]
pub struct ContenderResult {
    /// The contender.
    pub who: TableContender,
    /// CPU time per lookup in nanoseconds, for each set of queries and each round. Values with the
    /// same index were measured together.
    pub costs: Vec<Vec<f64>>,
    /// Time to build the table, in milliseconds.
    pub build_ms: u64,
    /// Memory of the table, and the part of it in huge pages, in KiB.
    pub memory: [u64; 2],
}

impl ContenderResult {
    /// Returns true if at least 90 % of the table is in huge pages.
    #[must_use]
    pub fn is_huge(&self) -> bool {
        self.memory[1] * 10 >= self.memory[0] * 9
    }
}

/// Parameters of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Page size of the tables.
    pub pages: Pages,
    /// Number of rounds and length of slices.
    pub effort: Effort,
    /// Number of rounds after which the programs are restarted, so that no result depends on page
    /// placement. A program whose table takes long to build is not restarted.
    pub restart: usize,
}

/// Runs the contender that the arguments name: KIND PAGES FILE.
///
/// # Errors
/// Returns an error if the kind is unknown or its table cannot be built.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [kind, pages, file] = arguments else {
        return Err("KIND PAGES FILE".into());
    };
    if pages == "small" {
        disable_transparent_huge_pages(true)?;
    }
    let query = match kind.as_str() {
        "lpm4" | "lpm4-many" | "prefix-trie" => 4,
        _ => 16,
    };
    let workload = File::read(Path::new(file), query)?;
    match kind.as_str() {
        "hashbrown" => crate_tables::hashbrown(&workload),
        "prefix-trie" => crate_tables::prefix_trie(&workload),
        "prefix-trie6" => crate_tables::prefix_trie6(&workload),
        "hash" => fastlane_tables::hash(&workload),
        "lpm4" => fastlane_tables::lpm4(&workload, false),
        "lpm4-many" => fastlane_tables::lpm4(&workload, true),
        "classifier" => classifiers::fastlane(&workload),
        "bit-vectors" => classifiers::bit_vectors(&workload),
        "tuple-space" => classifiers::tuple_space(&workload),
        "lpm6" => fastlane_tables::lpm6(&workload, false),
        "lpm6-many" => fastlane_tables::lpm6(&workload, true),
        _ => Err(format!("no contender {kind}").into()),
    }
}

/// Runs all contenders in turns over the sets of `workload`.
///
/// # Errors
/// Returns an error if a contender does not start or its results differ from the first one's.
pub fn compare(
    contenders: &[TableContender],
    workload: &Workload,
    setting: Setting,
    programs: &Programs,
    mut progress: impl FnMut(usize),
) -> Result<Vec<ContenderResult>> {
    let file = File::write(workload)?;
    let sets = workload.sets.len();
    let mut found = Vec::new();
    let mut running: Vec<Option<Subprocess>> = Vec::new();
    for &who in contenders {
        found.push(ContenderResult {
            who,
            costs: vec![Vec::new(); sets],
            build_ms: 0,
            memory: [0; 2],
        });
        running.push(None);
    }
    for round in 0..setting.effort.pairs {
        progress(round);
        if round % setting.restart == 0 {
            start(&mut running, &mut found, &file, setting.pages, programs)?;
        }
        for set in 0..sets {
            let costs = slices(&mut running, set, setting.effort, round as u32)?;
            found.iter_mut().zip(costs).for_each(|(found, cost)| found.costs[set].push(cost));
        }
    }
    Ok(found)
}

/// Starts the contenders that do not run or are due for a restart.
fn start(
    running: &mut [Option<Subprocess>],
    found: &mut [ContenderResult],
    file: &File,
    pages: Pages,
    programs: &Programs,
) -> Result<()> {
    let again = running.iter().any(Option::is_some);
    for (place, found) in found.iter_mut().enumerate() {
        if !again || !found.who.is_slow_to_build() {
            running[place] = None;
            let talking = Subprocess::start(found.who, pages, file, programs)?;
            (found.build_ms, found.memory) = (talking.build_ms, talking.memory);
            running[place] = Some(talking);
        }
    }
    let mut all = running.iter().flatten();
    let first = all.next().ok_or("no contender")?;
    match all.find(|other| other.results != first.results) {
        Some(other) => Err(format!(
            "{} finds {:?}, {} finds {:?}",
            first.who, first.results, other.who, other.results
        )
        .into()),
        None => Ok(()),
    }
}

/// Runs a slice of each contender, in turns whose order rotates. Returns the nanoseconds per
/// lookup.
fn slices(
    running: &mut [Option<Subprocess>],
    set: usize,
    effort: Effort,
    round: u32,
) -> Result<Vec<f64>> {
    let count = running.len();
    let mut sums = vec![Slice::default(); count];
    for part in 0..PARTS {
        let backwards = (part + round) % 2 == 1;
        for place in 0..count {
            let place = (place + (part / 2) as usize) % count;
            let place = if backwards { count - 1 - place } else { place };
            let talking = running[place].as_mut().ok_or("not started")?;
            talking.set = set;
            let part = talking.run(effort.slice / PARTS)?;
            sums[place].cpu += part.cpu;
            sums[place].packets += part.packets;
        }
    }
    if sums.iter().any(|sum| sum.packets == 0) {
        return Err("a slice without a lookup".into());
    }
    Ok(sums.iter().map(|sum| sum.cpu as f64 / sum.packets as f64).collect())
}
