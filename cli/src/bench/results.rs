//! What was found, as it is published: units are in the keys.

use fastlane_measure::machine::Machine;
use fastlane_measure::statistics::{Estimate, Spread, Verdict};
use serde::Serialize;

use super::description::{Description, FrameSize};
use super::search::Search;
use super::trial::{Limit, Outcome};

/// A whole benchmark.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Results {
    /// The release of this command.
    pub(super) fastlane: String,
    /// When it began and ended (UTC, ISO 8601).
    pub(super) began: String,
    pub(super) ended: String,
    pub(super) machine: Machine,
    /// Load averages over a minute before and after: how much else went on.
    pub(super) load_average: [f64; 2],
    /// Few, short trials: figures for orientation only.
    pub(super) quick: bool,
    pub(super) description: Description,
    /// How much of a core the device uses without load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle_cores: Option<f64>,
    pub(super) sizes: Vec<SizeResult>,
    pub(super) comparisons: Vec<ComparisonResult>,
}

/// All tests with frames of one size.
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

/// The highest rate without loss.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ThroughputResult {
    /// Over the searches; absent when one found none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packets_per_second: Option<Spread>,
    /// The median in bits of frames, check sequences included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bits_per_second: Option<f64>,
    /// What kept most of the searches from higher rates.
    pub(super) limited_by: Limit,
    pub(super) searches: Vec<Search>,
}

/// Latency and CPU at a load.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LoadResult {
    /// Of the throughput.
    pub(super) load_percent: f64,
    pub(super) device_ns_per_packet: f64,
    pub(super) device_cores: f64,
    pub(super) trial: Outcome,
}

/// The longest bursts without loss.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct BackToBackResult {
    pub(super) average_packets: f64,
    /// How fast the generator sent them.
    pub(super) packets_per_second: f64,
    /// The longest burst to be tried passed: the device may take longer ones.
    pub(super) reached_longest: bool,
    /// The longest of each search; 0 when even a single packet was lost.
    pub(super) longest_packets: Vec<u64>,
}

/// The device against another, or against itself.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ComparisonResult {
    /// Whether it is the device against itself, which shows what the method resolves.
    pub(super) control: bool,
    pub(super) frame_size: FrameSize,
    pub(super) device: String,
    pub(super) rival: String,
    /// CPU time per packet in each slice; those at one place are a pair.
    pub(super) device_ns_per_packet: Vec<f64>,
    pub(super) rival_ns_per_packet: Vec<f64>,
    /// The device's by the rival's: the median of the pairs with its 95 % interval.
    pub(super) ratio: Estimate,
    /// What the ratio shall not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
}
