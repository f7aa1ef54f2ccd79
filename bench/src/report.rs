//! The results of a run in the form in which they are published. All results are kept and no file
//! is overwritten.

pub mod figure;
pub mod figure_svg;
pub mod markdown;
pub mod plot;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use fastlane_measure::machine::{self, Machine, free_huge_pages, load_average};
pub use fastlane_measure::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::report::figure::Figure;
use crate::slices::{Effort, Pairs};
use crate::statistics::{Estimate, Verdict, median};

/// Results of one run of the benchmarks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Start of the run (UTC, ISO 8601).
    pub date: String,
    /// Commit that was measured; a `+` marks a tree with changes.
    pub revision: String,
    /// Name of the processor, as Linux reports it.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Version of Linux.
    pub linux: String,
    /// Free huge pages at the start in MiB, which programs on DPDK use if there are enough. Older
    /// reports do not say it.
    #[serde(default)]
    pub huge_pages_mib: Option<u64>,
    /// Load average over a minute, before and after the run.
    pub load: [f64; 2],
    /// Number of pairs of slices.
    pub pairs: usize,
    /// Approximate length of a slice in milliseconds.
    pub slice_ms: u64,
    /// Comparisons of two contenders.
    pub comparisons: Vec<Comparison>,
    /// CPU by load and idle policy.
    pub idle: Vec<IdleLine>,
    /// Round trips.
    pub round_trips: Vec<RoundTrip>,
    /// Figures: results as a function of a parameter.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Measurements that failed on this machine, with the reasons.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Quantity that is estimated from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Our cost divided by the rival's.
    Ratio,
    /// Our cost minus the rival's, in nanoseconds.
    Difference,
    /// Our cost in nanoseconds; the rival's is shown for comparison.
    Cost,
}

/// Comparison of two contenders that do the same work, in CPU time per packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comparison {
    /// Description of the work.
    pub work: String,
    /// Name of the framework's contender.
    pub ours: String,
    /// Name of the rival.
    pub rival: String,
    /// Our nanoseconds per packet in each slice.
    pub ours_ns: Vec<f64>,
    /// The rival's nanoseconds per packet in each slice. Values with the same index were measured
    /// together.
    pub rival_ns: Vec<f64>,
    /// Kind of the estimate.
    pub kind: Kind,
    /// Estimate with its interval.
    pub estimate: Estimate,
    /// Upper bound of the estimate, if there is one.
    pub bound: Option<f64>,
    /// Verdict on the bound.
    pub verdict: Option<Verdict>,
}

impl Comparison {
    /// Creates a comparison from pairs.
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

/// CPU use of one idle policy at one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct IdleLine {
    /// `busy`, `interrupt` or `adaptive`.
    pub policy: String,
    /// Load as a fraction of the maximum.
    pub load: f64,
    /// Fraction of a core that the lane's thread used.
    pub core: Spread,
    /// The same: median of the rounds with its interval.
    pub core_interval: Estimate,
    /// Frames echoed per second.
    pub rate: Spread,
}

/// Round trips of one case, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RoundTrip {
    /// Mechanism: AF_XDP or AF_PACKET.
    pub mechanism: String,
    /// Idle policy of the lane.
    pub policy: String,
    /// Pace at which frames are sent.
    pub pace: String,
    /// Median of a round.
    pub p50_us: Spread,
    /// Difference to the p50 of a lane that waits for interrupts, in the same round.
    pub above_interrupt_us: Estimate,
    /// 99th percentile of a round.
    pub p99_us: Spread,
    /// Number of frames sent in all rounds.
    pub frames: usize,
    /// Number of frames lost.
    pub lost: usize,
}

impl Report {
    /// Creates a report without results for this machine and the current time.
    #[must_use]
    pub fn begin(effort: Effort) -> Self {
        let Machine { processor, processors, linux } = Machine::this();
        Self {
            date: machine::today(),
            revision: revision(),
            processor,
            processors,
            linux,
            huge_pages_mib: Some(free_huge_pages()),
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

    /// Adds a failed measurement to the report and prints it on standard error.
    pub fn leave_out(&mut self, what: &str, why: &(dyn std::error::Error + Send + Sync)) {
        let text = format!("{what}: {why}");
        eprintln!("not measured: {text}");
        self.left_out.push(text);
    }

    /// Stores the load of the machine at the end of the run.
    pub fn end(&mut self) {
        self.load[1] = load_average();
    }

    /// Writes the report, its plot and its figures into `folder`, as new files named after the
    /// date, with a number behind it if another run began in the same second. Returns their paths.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn publish(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)?;
        let (stem, mut file) = create(folder, &self.date.replace(':', ""))?;
        file.write_all((serde_json::to_string_pretty(self)? + "\n").as_bytes())?;
        let mut files = vec![folder.join(format!("{stem}.json"))];
        let mut write = |name: String, content: String| {
            let path = folder.join(name);
            std::fs::write(&path, content)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            files.push(path);
            Result::Ok(())
        };
        if !self.comparisons.is_empty() || !self.idle.is_empty() {
            write(format!("{stem}.svg"), crate::report::plot::svg(self))?;
        }
        for figure in &self.figures {
            write(format!("{stem}-{}.svg", figure.name), figure_svg::svg(figure))?;
        }
        Ok(files)
    }
}

/// Creates the file of a report that began at `date`. Returns the start of its name, too.
fn create(folder: &Path, date: &str) -> Result<(String, File)> {
    let (mut name, mut number) = (date.to_owned(), 1);
    loop {
        let path = folder.join(format!("{name}.json"));
        match File::create_new(&path) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                number += 1;
                name = format!("{date}-{number}");
            }
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        }
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
        assert_eq!(read.huge_pages_mib, report.huge_pages_mib);
        assert_eq!(read.comparisons[0].estimate.value, 1.0);
        assert!(std::fs::read_to_string(svg).unwrap().ends_with("</svg>\n"));
        // Another run that began in the same second.
        let second = report.publish(&folder).unwrap();
        assert!(second[0].ends_with(format!("{}-2.json", report.date.replace(':', ""))));
        assert!(second.iter().all(|file| !files.contains(file)), "{files:?} and {second:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
