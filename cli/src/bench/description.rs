//! What is measured and how: the description, a JSON file.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A benchmark: the device, what drives it, and which tests to make.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Description {
    /// Where this schema is, for editors.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<String>,
    /// The title of the report. Default: the device's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// What is measured.
    pub(super) device: Device,
    /// What drives it: sends frames to it and takes them back.
    pub(super) generator: Generator,
    /// Another device with a generator of its own, to compare the first with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rival: Option<Rival>,
    /// Lengths of frames as RFC 2544 counts them, with the check sequence of four bytes: numbers,
    /// or "imix" (7 : 4 : 1 of 64, 594 and 1518).
    #[serde(default = "frame_sizes")]
    pub(super) frame_sizes: Vec<FrameSize>,
    /// Which tests to make. Default: all, `comparison` if there is a rival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tests: Option<Vec<Test>>,
    /// The search for the throughput.
    #[serde(default)]
    pub(super) throughput: Throughput,
    /// Latency and CPU at parts of the throughput found.
    #[serde(default)]
    pub(super) latency: Latency,
    /// The longest burst without loss.
    #[serde(default)]
    pub(super) back_to_back: BackToBack,
    /// CPU time of the device and its rival, in alternating slices.
    #[serde(default)]
    pub(super) comparison: Comparison,
}

/// A program that moves frames, of whatever make.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Device {
    /// The program and its arguments. It is started once, with an input that stays open. A wrapper
    /// must become the program (`exec`): what is measured is this process.
    pub(super) command: Vec<String>,
    /// It must pass frames within this time.
    #[serde(default = "ready_within")]
    pub(super) ready_within_ms: u64,
    /// It must end within this time after SIGINT, and after SIGTERM.
    #[serde(default = "stop_within")]
    pub(super) stop_within_ms: u64,
}

/// The program `traffic`: see its README for what its configuration says.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Generator {
    /// The program. Default: `traffic`, beside this program or in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<String>,
    /// Its configuration: ports, lanes, and in `app` the port and the flows. What a trial sets
    /// (rate, count, duration, lengths, report) is not for `app` to say.
    pub(super) configuration: Map<String, Value>,
}

/// What the device is compared with.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Rival {
    /// What is measured.
    pub(super) device: Device,
    /// What drives it. It has ports of its own.
    pub(super) generator: Generator,
}

/// The length of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "not a number of bytes or \"imix\"")]
pub(super) enum FrameSize {
    /// All the same.
    Bytes(u32),
    /// A mix.
    Mix(Mix),
}

/// A named mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mix {
    /// 7 of 64 bytes, 4 of 594, 1 of 1518.
    Imix,
}

impl FrameSize {
    /// As the generator counts: without the check sequence.
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

/// A kind of test.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Test {
    /// The highest rate without loss (RFC 2544 clause 26.1).
    Throughput,
    /// Latency and CPU at parts of the throughput (RFC 2544 clause 26.2, RFC 8219 clause 7.2).
    Latency,
    /// The longest burst without loss (RFC 2544 clause 26.4, RFC 9004).
    BackToBack,
    /// CPU time against the rival.
    Comparison,
}

/// The search for the throughput.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Throughput {
    /// How long a trial sends. (RFC 2544 wants 60 s for a published result.)
    pub(super) trial_ms: u64,
    /// How often the whole search is repeated; the result is the median.
    pub(super) repeats: usize,
    /// Trials at a rate: it has passed when most of them have. 1 is strict RFC 2544; more forgives
    /// a shared machine its pauses.
    pub(super) attempts: usize,
    /// How much may be lost in a trial that passes, of a million frames.
    pub(super) acceptable_loss_ppm: f64,
    /// The search ends when the bounds are so near, in parts of the upper one.
    pub(super) resolution_percent: f64,
    /// The lowest rate to try.
    pub(super) lowest_packets_per_second: u64,
    /// The highest rate to try, such as that of the line; 0 is as fast as the generator can.
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

/// Latency and CPU by load.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Latency {
    /// How long a trial sends; the first tenth does not count.
    pub(super) trial_ms: u64,
    /// The loads, in parts of the throughput found.
    pub(super) loads_percent: Vec<f64>,
}

impl Default for Latency {
    fn default() -> Self {
        Self { trial_ms: 2000, loads_percent: vec![10.0, 50.0, 90.0] }
    }
}

/// Bursts as fast as the generator can.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct BackToBack {
    /// How often the longest burst is searched for; the result is the average (RFC 9004).
    pub(super) repeats: usize,
    /// The longest burst to try, in packets.
    pub(super) longest_packets: u64,
}

impl Default for BackToBack {
    fn default() -> Self {
        Self { repeats: 10, longest_packets: 131_072 }
    }
}

/// The comparison with the rival.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Comparison {
    /// Pairs of slices, at least 31 for a result that means something.
    pub(super) pairs: usize,
    /// How long a slice is.
    pub(super) slice_ms: u64,
    /// The length of the frames.
    pub(super) frame_size: FrameSize,
    /// Frames on their way at a time: the device always has work.
    pub(super) outstanding_packets: u64,
    /// What the CPU time per packet, divided by the rival's, shall not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<f64>,
    /// Whether the device is also compared with itself, to see what the method can resolve.
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

/// What trials set of the generator's settings.
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
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("{place}: {error}; write one after `fastlane bench --schema`")
        })?;
        Self::read(&text).map_err(|error| format!("{place}{error}"))
    }

    /// Reads and checks a description; an error begins with the place in it.
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

    /// Which tests are to be made.
    pub(super) fn makes(&self, test: Test) -> bool {
        let possible = test != Test::Comparison || self.rival.is_some();
        possible && self.tests.as_ref().is_none_or(|tests| tests.contains(&test))
    }

    /// Few, short trials: to see that everything works, and about where the figures are.
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

    /// Checks what the form cannot say.
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

/// Where in the text, which key, and what is wrong with it.
fn located(error: &serde_json::Error, path: &str) -> String {
    let message = error.to_string();
    let what = message.rfind(" at line ").map_or(&*message, |end| &message[..end]);
    let (line, column) = (error.line(), error.column());
    if path.is_empty() || path == "." {
        return format!(":{line}:{column}: {what}");
    }
    format!(":{line}:{column}: {path}: {what}")
}

/// The schema of a description.
pub(super) fn schema() -> String {
    let schema = schemars::schema_for!(Description);
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
