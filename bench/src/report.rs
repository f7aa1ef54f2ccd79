//! What a run found, as it is published: nothing picked, nothing overwritten.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::slices::{Effort, Pairs};
use crate::statistics::{Estimate, Verdict, median, quantile};

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
}

/// What is estimated from pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Ours divided by the rival's.
    Ratio,
    /// Ours less the rival's, in nanoseconds.
    Difference,
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
        };
        let verdict = bound.map(|bound| estimate.verdict(bound, whole));
        Self { work, ours, rival, ours_ns, rival_ns, kind, estimate, bound, verdict }
    }
}

/// A median over rounds and how far they were apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle round.
    pub median: f64,
    /// The lowest round.
    pub low: f64,
    /// The highest round.
    pub high: f64,
}

impl Spread {
    /// Of the values of all rounds.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        Self { median: median(values), low: quantile(values, 0.0), high: quantile(values, 1.0) }
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
        let line = |path, start: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(start));
            line.map(|line| line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
        };
        let linux = line("/proc/sys/kernel/osrelease", "").unwrap_or_default();
        Self {
            date: date(SystemTime::now()),
            revision: revision(),
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            linux: linux.split('-').next().unwrap_or_default().to_owned(),
            load: [load_average(); 2],
            pairs: effort.pairs,
            slice_ms: effort.slice.as_millis() as u64,
            comparisons: Vec::new(),
            idle: Vec::new(),
            round_trips: Vec::new(),
        }
    }

    /// Notes how busy the machine is at the end.
    pub fn end(&mut self) {
        self.load[1] = load_average();
    }

    /// Writes the report and its plot into `folder`, as new files named after the date; returns
    /// their paths.
    ///
    /// # Errors
    /// When a file is there already or cannot be written.
    pub fn publish(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        std::fs::create_dir_all(folder)?;
        let stem = self.date.replace(':', "");
        let json = serde_json::to_string_pretty(self)? + "\n";
        let files = [("json", json), ("svg", crate::plot::svg(self))];
        let written = files.map(|(extension, content)| {
            let path = folder.join(format!("{stem}.{extension}"));
            let write = || File::create_new(&path)?.write_all(content.as_bytes());
            write().map_err(|error| format!("{}: {error}", path.display())).map(|()| path)
        });
        let [json, svg] = written;
        Ok([json?, svg?])
    }
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
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

/// Seconds since 1970 as a date of the Gregorian calendar, by the algorithm of Howard Hinnant
/// ("chrono-compatible low-level date algorithms", `civil_from_days`).
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153; // months since March
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_right() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_132_799), "2026-11-19T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_published_report_reads_back_and_is_never_overwritten() {
        let effort = Effort { pairs: 3, slice: Duration::from_millis(500) };
        let mut report = Report::begin(effort);
        let pairs = Pairs { ours: vec![5.0; 3], rival: vec![4.0; 3] };
        let names = ["work", "ours", "rival"].map(str::to_owned);
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, Some(2.0)));
        let folder = std::env::temp_dir().join(format!("fastlane-report-{}", std::process::id()));
        let [json, svg] = report.publish(&folder).unwrap();
        let read: Report = serde_json::from_reader(File::open(&json).unwrap()).unwrap();
        assert_eq!(read.comparisons[0].verdict, Some(Verdict::Holds));
        assert_eq!(read.comparisons[0].estimate.value, 1.0);
        assert!(std::fs::read_to_string(svg).unwrap().ends_with("</svg>\n"));
        assert!(report.publish(&folder).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
