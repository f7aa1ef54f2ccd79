//! Results as they are published in JSON. The keys contain the units.

use serde::Serialize;

use super::description::{Description, FrameSize};
use super::search::Search;
use super::trial::{Limit, Outcome};
use crate::machine::Machine;
use crate::statistics::{Estimate, Spread, Verdict};

/// Results of a benchmark.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Results {
    /// Release of this command.
    pub(super) fastlane: String,
    /// Start of the benchmark (UTC, ISO 8601).
    pub(super) began: String,
    /// End of the benchmark (UTC, ISO 8601).
    pub(super) ended: String,
    pub(super) machine: Machine,
    /// One-minute load averages before and after: the load by other programs.
    pub(super) load_average: [f64; 2],
    /// True for few, short trials, whose figures are for orientation only.
    pub(super) quick: bool,
    pub(super) description: Description,
    /// CPU use of the device without load, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle_cores: Option<f64>,
    pub(super) sizes: Vec<SizeResult>,
    pub(super) comparisons: Vec<ComparisonResult>,
}

/// Results of all tests with frames of one size.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SizeResult {
    pub(super) frame_size: FrameSize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throughput: Option<ThroughputResult>,
    pub(super) loads: Vec<LoadResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) back_to_back: Option<BackToBackResult>,
}

/// Result of the search for the highest rate without loss.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ThroughputResult {
    /// Rate over all searches; absent if a search found no rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packets_per_second: Option<Spread>,
    /// Median rate in bits a second, with check sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bits_per_second: Option<f64>,
    /// Most frequent limit of the searches.
    pub(super) limited_by: Limit,
    pub(super) searches: Vec<Search>,
}

/// Latency and CPU time at one load.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LoadResult {
    /// Load in percent of the throughput.
    pub(super) load_percent: f64,
    pub(super) device_ns_per_packet: f64,
    pub(super) device_cores: f64,
    pub(super) trial: Outcome,
}

/// Result of the search for the longest burst without loss.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct BackToBackResult {
    pub(super) average_packets: f64,
    /// Median rate at which the generator sent the bursts.
    pub(super) packets_per_second: f64,
    /// True if the longest permitted burst passed: the device may take longer ones.
    pub(super) reached_longest: bool,
    /// Longest burst of each search; 0 if even a single packet was lost.
    pub(super) longest_packets: Vec<u64>,
}

/// Comparison of the device with its rival or with itself.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ComparisonResult {
    /// True if the device is compared with itself, which shows the resolution of the method.
    pub(super) control: bool,
    pub(super) frame_size: FrameSize,
    pub(super) device: String,
    pub(super) rival: String,
    /// CPU time per packet in each slice. Slices of device and rival with one index are a pair.
    pub(super) device_ns_per_packet: Vec<f64>,
    pub(super) rival_ns_per_packet: Vec<f64>,
    /// Ratio of device to rival: median of the pairs with its 95 % interval.
    pub(super) ratio: Estimate,
    /// Upper bound of the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
}
