//! What a run found, as it is published: nothing picked, nothing overwritten.

pub mod figure;
pub mod figure_svg;
pub mod markdown;
pub mod plot;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastlane_measure::machine::{self, Machine, load_average};
pub use fastlane_measure::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::report::figure::Figure;
use crate::slices::{Effort, Pairs};
use crate::statistics::{Estimate, Verdict, median};

/// One run of the benchmarks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// When it began (UTC, ISO 8601).
    pub date: String,
    /// The commit that was measured; a `+` says that the tree had changes.
    pub revision: String,
    /// The processor, as Linux names it.
    pub processor: String,
    /// How many of them.
    pub processors: usize,
    /// The version of Linux.
    pub linux: String,
    /// The load average over a minute, before and after: how much else went on.
    pub load: [f64; 2],
    /// Pairs of slices.
    pub pairs: usize,
    /// About how long a slice was, in milliseconds.
    pub slice_ms: u64,
    /// Two ways of doing the same.
    pub comparisons: Vec<Comparison>,
    /// CPU by load and idle policy.
    pub idle: Vec<IdleLine>,
    /// Round trips.
    pub round_trips: Vec<RoundTrip>,
    /// What depends on something.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// What could not be measured on this machine, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// What is estimated from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Ours divided by the rival's.
    Ratio,
    /// Ours less the rival's, in nanoseconds.
    Difference,
    /// Ours, in nanoseconds; the rival's is for comparison.
    Cost,
}

/// Two ways of doing the same, in CPU time per packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comparison {
    /// Which work.
    pub work: String,
    /// The framework's way.
    pub ours: String,
    /// The other way.
    pub rival: String,
    /// Nanoseconds per packet in each slice, ours.
    pub ours_ns: Vec<f64>,
    /// Nanoseconds per packet in each slice, the rival's; those at one place were measured
    /// together.
    pub rival_ns: Vec<f64>,
    /// What is estimated.
    pub kind: Kind,
    /// The estimate.
    pub estimate: Estimate,
    /// What it shall not exceed, if anything.
    pub bound: Option<f64>,
    /// Whether it does.
    pub verdict: Option<Verdict>,
}

impl Comparison {
    /// Compares pairs.
    #[must_use]
    pub fn new(names: [String; 3], pairs: Pairs, kind: Kind, bound: Option<f64>) -> Self {
        let [work, ours, rival] = names;
        let Pairs { ours: ours_ns, rival: rival_ns } = pairs;
        let (estimate, whole) = match kind {
            Kind::Ratio => (Estimate::of_ratio(&ours_ns, &rival_ns), 1.0),
            Kind::Difference => (Estimate::of_difference(&ours_ns, &rival_ns), median(&ours_ns)),
            Kind::Cost => (Estimate::of_median(&ours_ns), median(&ours_ns)),
        };
        let verdict = bound.map(|bound| estimate.verdict(bound, whole));
        Self { work, ours, rival, ours_ns, rival_ns, kind, estimate, bound, verdict }
    }
}

/// CPU of one policy at one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdleLine {
    /// `busy`, `interrupt` or `adaptive`.
    pub policy: String,
    /// The load, as a part of the most.
    pub load: f64,
    /// Part of a core that the lane's thread used.
    pub core: Spread,
    /// Frames echoed in a second.
    pub rate: Spread,
}

/// Round trips of one case, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RoundTrip {
    /// AF_XDP or AF_PACKET.
    pub mechanism: String,
    /// The idle policy.
    pub policy: String,
    /// When frames are sent.
    pub pace: String,
    /// The median of a round.
    pub p50_us: Spread,
    /// What 99 of 100 frames of a round did not exceed.
    pub p99_us: Spread,
    /// Frames sent in all rounds.
    pub frames: usize,
    /// Of these, lost.
    pub lost: usize,
}

impl Report {
    /// A report without results, of this machine and this moment.
    #[must_use]
    pub fn begin(effort: Effort) -> Self {
        let Machine { processor, processors, linux } = Machine::this();
        Self {
            date: machine::today(),
            revision: revision(),
            processor,
            processors,
            linux,
            load: [load_average(); 2],
            pairs: effort.pairs,
            slice_ms: effort.slice.as_millis() as u64,
            comparisons: Vec::new(),
            idle: Vec::new(),
            round_trips: Vec::new(),
            figures: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Notes that something was not measured, and says so on standard error.
    pub fn leave_out(&mut self, what: &str, why: &(dyn std::error::Error + Send + Sync)) {
        let text = format!("{what}: {why}");
        eprintln!("not measured: {text}");
        self.left_out.push(text);
    }

    /// Notes how busy the machine is at the end.
    pub fn end(&mut self) {
        self.load[1] = load_average();
    }

    /// Writes the report, its plot and its figures into `folder`, as new files named after the
    /// date; returns their paths.
    ///
    /// # Errors
    /// When a file is there already or cannot be written.
    pub fn publish(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)?;
        let stem = self.date.replace(':', "");
        let json = serde_json::to_string_pretty(self)? + "\n";
        let mut files = vec![(format!("{stem}.json"), json)];
        if !self.comparisons.is_empty() || !self.idle.is_empty() {
            files.push((format!("{stem}.svg"), crate::report::plot::svg(self)));
        }
        let figure =
            |figure: &Figure| (format!("{stem}-{}.svg", figure.name), figure_svg::svg(figure));
        files.extend(self.figures.iter().map(figure));
        let write = |(name, content): (String, String)| {
            let path = folder.join(name);
            let write = || File::create_new(&path)?.write_all(content.as_bytes());
            write().map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path)
        };
        files.into_iter().map(write).collect()
    }
}

fn revision() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_some_and(|files| !files.is_empty()) { commit + "+" } else { commit }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_published_report_reads_back_and_is_never_overwritten() {
        let effort = Effort { pairs: 3, slice: Duration::from_millis(500) };
        let mut report = Report::begin(effort);
        let pairs = Pairs { ours: vec![5.0; 3], rival: vec![4.0; 3] };
        let names = ["work", "ours", "rival"].map(str::to_owned);
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, Some(2.0)));
        let folder = std::env::temp_dir().join(format!("fastlane-report-{}", std::process::id()));
        let mut figure = Figure::new("lanes", "Cost", "Lanes", crate::report::figure::Style::Lines);
        figure.add("memory", "1", 5.0);
        report.figures.push(figure);
        let files = report.publish(&folder).unwrap();
        let [json, svg, figure] = &files[..] else { panic!("{files:?}") };
        assert!(figure.ends_with(format!("{}-lanes.svg", report.date.replace(':', ""))));
        let read: Report = serde_json::from_reader(File::open(json).unwrap()).unwrap();
        assert_eq!(read.figures[0].series[0].values, [[5.0]]);
        assert_eq!(read.comparisons[0].verdict, Some(Verdict::Holds));
        assert_eq!(read.comparisons[0].estimate.value, 1.0);
        assert!(std::fs::read_to_string(svg).unwrap().ends_with("</svg>\n"));
        assert!(report.publish(&folder).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
