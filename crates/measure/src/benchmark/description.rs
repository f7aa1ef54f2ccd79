//! Description of a benchmark: a JSON file.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A benchmark: the device, its generator, and the tests.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Description {
    /// Path or URL of this schema, for editors.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<String>,
    /// Title of the report. Default: the device's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// Device under test.
    pub(super) device: Device,
    /// Generator, which sends frames to the device and receives them back.
    pub(super) generator: Generator,
    /// Another device with its own generator, to compare the first with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rival: Option<Rival>,
    /// Frame lengths as in RFC 2544, with the check sequence of four bytes: numbers, or "imix"
    /// (7 : 4 : 1 of 64, 594 and 1518).
    #[serde(default = "frame_sizes")]
    pub(super) frame_sizes: Vec<FrameSize>,
    /// Tests to run. Default: all; `comparison` only with a rival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tests: Option<Vec<Test>>,
    /// Search for the throughput.
    #[serde(default)]
    pub(super) throughput: Throughput,
    /// Latency and CPU time at fractions of the throughput found.
    #[serde(default)]
    pub(super) latency: Latency,
    /// Search for the longest burst without loss.
    #[serde(default)]
    pub(super) back_to_back: BackToBack,
    /// Comparison of CPU time with the rival, in alternating slices.
    #[serde(default)]
    pub(super) comparison: Comparison,
}

/// Any program that sends received frames back or forwards them.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Device {
    /// Program and its arguments. It is started once, with a standard input that stays open. A
    /// wrapper must replace itself with the program (`exec`), since this process is measured.
    pub(super) command: Vec<String>,
    /// Time limit for the first frame to pass, in milliseconds.
    #[serde(default = "ready_within")]
    pub(super) ready_within_ms: u64,
    /// Time limit for the end after SIGINT, and after SIGTERM, in milliseconds.
    #[serde(default = "stop_within")]
    pub(super) stop_within_ms: u64,
}

/// The generator, program `traffic`. Its README describes its configuration.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Generator {
    /// Path of the program. Default: `traffic`, in the folder of this program or in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<String>,
    /// Configuration of the generator: ports, lanes, and in `app` the port and the flows. `app`
    /// must not contain the settings of trials (rate, count, duration, lengths, report).
    pub(super) configuration: Map<String, Value>,
}

/// Rival that the device is compared with.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Rival {
    /// Rival device.
    pub(super) device: Device,
    /// Generator of the rival, with its own ports.
    pub(super) generator: Generator,
}

/// Frame length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "not a number of bytes or \"imix\"")]
pub(super) enum FrameSize {
    /// One length for all frames, in bytes.
    Bytes(u32),
    /// Named mix of lengths.
    Mix(Mix),
}

/// Named mix of frame lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mix {
    /// 7 frames of 64 bytes, 4 of 594 bytes and 1 of 1518 bytes.
    Imix,
}

impl FrameSize {
    /// Returns the length for the generator, which does not count the check sequence.
    pub(super) fn for_generator(self) -> Value {
        match self {
            Self::Bytes(bytes) => bytes.saturating_sub(4).into(),
            Self::Mix(Mix::Imix) => "imix".into(),
        }
    }
}

impl std::fmt::Display for FrameSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::Mix(Mix::Imix) => f.write_str("IMIX"),
        }
    }
}

/// Kind of test.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Highest rate without loss (RFC 2544 clause 26.1).
    Throughput,
    /// Latency and CPU time at fractions of the throughput (RFC 2544 clause 26.2, RFC 8219 clause
    /// 7.2).
    Latency,
    /// Longest burst without loss (RFC 2544 clause 26.4, RFC 9004).
    BackToBack,
    /// CPU time compared with the rival.
    Comparison,
}

/// Search for the throughput.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Throughput {
    /// Duration of a trial in milliseconds. RFC 2544 requires 60 s for a published result.
    pub(super) trial_ms: u64,
    /// Number of searches; the result is their median.
    pub(super) repeats: usize,
    /// Number of trials at each rate. The rate passes if the majority of them passes. 1 is strict
    /// RFC 2544; more trials tolerate the pauses of a shared machine.
    pub(super) attempts: usize,
    /// Maximum loss of a trial that passes, in frames per million.
    pub(super) acceptable_loss_ppm: f64,
    /// Distance of the bounds at which the search ends, in percent of the upper bound.
    pub(super) resolution_percent: f64,
    /// Lowest rate to try.
    pub(super) lowest_packets_per_second: u64,
    /// Highest rate to try, such as the line rate; 0 means as fast as the generator can.
    pub(super) highest_packets_per_second: u64,
}

impl Default for Throughput {
    fn default() -> Self {
        Self {
            trial_ms: 1000,
            repeats: 3,
            attempts: 3,
            acceptable_loss_ppm: 0.0,
            resolution_percent: 1.0,
            lowest_packets_per_second: 1000,
            highest_packets_per_second: 0,
        }
    }
}

/// Latency and CPU time by load.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Latency {
    /// Duration of a trial in milliseconds; the first tenth does not count.
    pub(super) trial_ms: u64,
    /// Loads, in percent of the throughput found.
    pub(super) loads_percent: Vec<f64>,
}

impl Default for Latency {
    fn default() -> Self {
        Self { trial_ms: 2000, loads_percent: vec![10.0, 50.0, 90.0] }
    }
}

/// Bursts sent as fast as the generator can.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct BackToBack {
    /// Number of searches for the longest burst; the result is their average (RFC 9004).
    pub(super) repeats: usize,
    /// Longest burst to try, in packets.
    pub(super) longest_packets: u64,
}

impl Default for BackToBack {
    fn default() -> Self {
        Self { repeats: 10, longest_packets: 131_072 }
    }
}

/// Comparison with the rival.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Comparison {
    /// Number of pairs of slices. A meaningful result needs at least 31.
    pub(super) pairs: usize,
    /// Duration of a slice in milliseconds.
    pub(super) slice_ms: u64,
    /// Length of the frames.
    pub(super) frame_size: FrameSize,
    /// Number of outstanding frames; enough to keep the device always at work.
    pub(super) outstanding_packets: u64,
    /// Upper bound of the CPU time per packet divided by the rival's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<f64>,
    /// True to compare the device with itself too, which shows the resolution of the method.
    pub(super) control: bool,
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            pairs: 31,
            slice_ms: 500,
            frame_size: FrameSize::Bytes(64),
            outstanding_packets: 256,
            bound: None,
            control: true,
        }
    }
}

/// Settings of the generator that trials set.
const OF_TRIALS: [&str; 9] = [
    "count-packets",
    "duration-ms",
    "frame-bytes",
    "outstanding-packets",
    "rate-packets-per-second",
    "report",
    "run",
    "trials-from-input",
    "warm-up-percent",
];

fn frame_sizes() -> Vec<FrameSize> {
    let bytes = [64, 128, 256, 512, 1024, 1280, 1518].map(FrameSize::Bytes);
    bytes.into_iter().chain([FrameSize::Mix(Mix::Imix)]).collect()
}

fn ready_within() -> u64 {
    10_000
}

fn stop_within() -> u64 {
    5000
}

impl Description {
    /// Reads and checks the description in a file.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let file = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("{file}: {error}; write one after `fastlane bench --schema`")
        })?;
        Self::read(&text).map_err(|error| format!("{file}{error}"))
    }

    /// Reads and checks a description. An error begins with the position in the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let read: Result<Self, _> = serde_path_to_error::deserialize(&mut reader);
        let description = read.map_err(|error| {
            let path = error.path().to_string();
            located(error.inner(), path.trim_end_matches(".?"))
        })?;
        reader.end().map_err(|error| located(&error, ""))?;
        description.check().map_err(|error| format!(": {error}"))?;
        Ok(description)
    }

    /// Returns true if `test` is to be run.
    pub(super) fn makes(&self, test: Test) -> bool {
        let possible = test != Test::Comparison || self.rival.is_some();
        possible && self.tests.as_ref().is_none_or(|tests| tests.contains(&test))
    }

    /// Reduces the number and duration of trials, to check a setup and get rough figures.
    pub(super) fn make_quick(&mut self) {
        self.frame_sizes.retain(|size| [64, 1518].map(FrameSize::Bytes).contains(size));
        if self.frame_sizes.is_empty() {
            self.frame_sizes.push(FrameSize::Bytes(64));
        }
        let Self { throughput, latency, back_to_back, comparison, .. } = self;
        throughput.trial_ms = throughput.trial_ms.min(100);
        throughput.repeats = 1;
        throughput.resolution_percent = throughput.resolution_percent.max(5.0);
        latency.trial_ms = latency.trial_ms.min(200);
        back_to_back.repeats = back_to_back.repeats.min(3);
        back_to_back.longest_packets = back_to_back.longest_packets.min(16_384);
        comparison.pairs = comparison.pairs.min(5);
        comparison.slice_ms = comparison.slice_ms.min(100);
    }

    /// Checks the rules that the schema cannot express.
    pub(super) fn check(&self) -> Result<(), String> {
        let refuse = |key: &str, reason: &str| Err(format!("{key}: {reason}"));
        let rival = self.rival.as_ref();
        let devices =
            [("device", Some(&self.device)), ("rival.device", rival.map(|it| &it.device))];
        for (key, device) in devices {
            if device.is_some_and(|device| device.command.is_empty()) {
                return refuse(&format!("{key}.command"), "is empty; write a program");
            }
        }
        let generators = [
            ("generator", Some(&self.generator)),
            ("rival.generator", rival.map(|it| &it.generator)),
        ];
        for (key, generator) in generators {
            let app = generator.and_then(|generator| generator.configuration.get("app"));
            if let Some(set) = app.and_then(|app| OF_TRIALS.iter().find(|it| app.get(it).is_some()))
            {
                let key = format!("{key}.configuration.app.{set}");
                return refuse(&key, "each trial sets it; remove it");
            }
        }
        for size in &self.frame_sizes {
            if let FrameSize::Bytes(bytes) = size
                && !(64..=16_004).contains(bytes)
            {
                let reason = format!("has {bytes}; allowed is 64 to 16004, or \"imix\"");
                return refuse("frame-sizes", &reason);
            }
        }
        if self.frame_sizes.is_empty() {
            return refuse("frame-sizes", "is empty; write at least one");
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), String> {
        let refuse = |key: &str, reason: &str| Err(format!("{key}: {reason}"));
        let Throughput { trial_ms, repeats, attempts, .. } = self.throughput;
        let positive = [
            ("throughput.trial-ms", trial_ms),
            ("throughput.repeats", repeats as u64),
            ("throughput.attempts", attempts as u64),
            ("throughput.lowest-packets-per-second", self.throughput.lowest_packets_per_second),
            ("latency.trial-ms", self.latency.trial_ms),
            ("back-to-back.repeats", self.back_to_back.repeats as u64),
            ("back-to-back.longest-packets", self.back_to_back.longest_packets),
            ("comparison.pairs", self.comparison.pairs as u64),
            ("comparison.slice-ms", self.comparison.slice_ms),
            ("comparison.outstanding-packets", self.comparison.outstanding_packets),
        ];
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return refuse(key, "is 0; write 1 or more");
        }
        if !(0.01..=50.0).contains(&self.throughput.resolution_percent) {
            return refuse("throughput.resolution-percent", "allowed is 0.01 to 50");
        }
        if !(0.0..1e6).contains(&self.throughput.acceptable_loss_ppm) {
            return refuse("throughput.acceptable-loss-ppm", "allowed is 0 to below 1000000");
        }
        if !self.latency.loads_percent.iter().all(|load| *load > 0.0 && *load <= 100.0) {
            return refuse("latency.loads-percent", "allowed is above 0, to 100");
        }
        Ok(())
    }
}

/// Formats an error with its line, column and key.
fn located(error: &serde_json::Error, path: &str) -> String {
    let message = error.to_string();
    let what = message.rfind(" at line ").map_or(&*message, |end| &message[..end]);
    let (line, column) = (error.line(), error.column());
    if path.is_empty() || path == "." {
        return format!(":{line}:{column}: {what}");
    }
    format!(":{line}:{column}: {path}: {what}")
}

/// Returns the JSON schema of a description.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(Description);
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
