//! Results of a run: counts, rates, losses and latency.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::settings::{Mode, Settings};
use crate::sink::{Counts, new_histogram};
use crate::tally::Tally;

/// Counts of one lane.
#[derive(Clone, Debug)]
pub struct LaneResult {
    /// Packets handed to the port.
    pub sent: Tally,
    /// Number of packets not sent because they are longer than the lane's frames.
    pub too_long: u64,
    /// Number of packets due by the rate but not sent in time.
    pub skipped: u64,
    /// Number of packets outstanding for longer than the answer timeout.
    pub given_up: u64,
    /// Packets received intact, each counted once.
    pub received: Tally,
    /// Other arrivals, and anomalies of received packets.
    pub counts: Counts,
    /// One more than the highest sequence number received here, for each flow.
    pub expected: Vec<u64>,
    /// Latency from sending to arrival, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Results of all lanes together. The JSON keys are in kebab case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Direction of the frames.
    pub mode: Mode,
    /// Number of the run.
    pub run: u16,
    /// True if the run ended by itself. If it was interrupted, packets on their way count as lost.
    pub complete: bool,
    /// Number of lanes that ran.
    pub lanes: usize,
    /// Number of flows.
    pub flows: usize,
    /// Configured rate; 0 means as fast as possible.
    pub wanted_packets_per_second: u64,
    /// Packets sent; absent with `receive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Direction>,
    /// Number of packets due by the rate but not sent: the lane did not run for longer than a burst
    /// takes, or its window was full.
    pub skipped_packets: u64,
    /// Number of packets not sent because they are longer than the lane's frames.
    pub too_long_packets: u64,
    /// Number of packets outstanding for longer than the answer timeout. They may have arrived
    /// later.
    pub given_up_packets: u64,
    /// Packets received, each counted once; absent with `send`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
}

/// Packets in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Direction {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, without frame check sequences.
    pub bytes: u64,
    /// Packets a second, from the first burst to the last.
    pub packets_per_second: f64,
    /// Bits a second, without frame check sequences.
    pub bits_per_second: f64,
}

/// Received and lost packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Received {
    /// Packets received intact, each counted once.
    #[serde(flatten)]
    pub direction: Direction,
    /// Packets sent, but neither received nor corrupted. With `receive`: the gaps between sequence
    /// numbers. Losses after the last received packet are not known.
    pub lost_packets: u64,
    /// Loss ratio in parts per million of the packets sent.
    pub lost_ppm: f64,
    /// Packets that arrived again.
    pub duplicated_packets: u64,
    /// Packets that arrived after a later one of their flow (RFC 4737).
    pub reordered_packets: u64,
    /// Packets that arrived damaged.
    pub corrupted_packets: u64,
    /// Packets so late that they may be duplicates; counted as lost. Raise `window-packets`.
    pub ancient_packets: u64,
    /// Packets of another run, or of a flow that is not configured here.
    pub other_run_packets: u64,
    /// Packets that this program did not send; left to Linux.
    pub foreign_packets: u64,
    /// Packets with a time of sending in the future: the clocks of sender and receiver differ.
    pub clock_skew_packets: u64,
    /// Number of flows that arrived at more than one lane. Duplicates and reordering between lanes
    /// are not detected, and such duplicates may hide losses.
    pub split_flows: usize,
    /// Latency from sending to arrival; absent if none was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Latencies in nanoseconds, with three significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names say it")]
pub struct Latency {
    /// Number of measurements, without warm-up and duplicates.
    pub samples: u64,
    pub minimum_ns: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
    pub maximum_ns: u64,
}

impl Report {
    /// Sums up the lanes of run `run`.
    #[must_use]
    pub fn new(settings: &Settings, run: u16, complete: bool, lanes: &[LaneResult]) -> Self {
        let sent = total(lanes.iter().map(|lane| lane.sent));
        Self {
            mode: settings.mode,
            run,
            complete,
            lanes: lanes.len(),
            flows: settings.flows.count as usize,
            wanted_packets_per_second: settings.rate_packets_per_second,
            sent: settings.sends().then(|| Direction::new(sent)),
            skipped_packets: lanes.iter().map(|lane| lane.skipped).sum(),
            too_long_packets: lanes.iter().map(|lane| lane.too_long).sum(),
            given_up_packets: lanes.iter().map(|lane| lane.given_up).sum(),
            received: settings.receives().then(|| {
                let sent = settings.sends().then_some(sent.packets);
                Received::new(sent, lanes)
            }),
        }
    }
}

impl Direction {
    fn new(tally: Tally) -> Self {
        let (packets_per_second, bits_per_second) = tally.rates();
        Self { packets: tally.packets, bytes: tally.bytes, packets_per_second, bits_per_second }
    }
}

impl Received {
    /// Sums up the lanes. `sent` is `None` if another process sends.
    fn new(sent: Option<u64>, lanes: &[LaneResult]) -> Self {
        let received = total(lanes.iter().map(|lane| lane.received));
        let counts = lanes.iter().fold(Counts::default(), |sum, lane| sum.merge(lane.counts));
        let flows = lanes.iter().map(|lane| lane.expected.len()).max().unwrap_or(0);
        let of_flow = |flow: usize| lanes.iter().filter_map(move |lane| lane.expected.get(flow));
        let sent = sent.unwrap_or_else(|| {
            (0..flows).map(|flow| of_flow(flow).max().copied().unwrap_or(0)).sum()
        });
        let lost = sent.saturating_sub(received.packets).saturating_sub(counts.corrupted);
        let split = |flow: &usize| of_flow(*flow).filter(|expected| **expected > 0).count() > 1;
        Self {
            direction: Direction::new(received),
            lost_packets: lost,
            lost_ppm: if sent > 0 { lost as f64 * 1e6 / sent as f64 } else { 0.0 },
            duplicated_packets: counts.duplicated,
            reordered_packets: counts.reordered,
            corrupted_packets: counts.corrupted,
            ancient_packets: counts.ancient,
            other_run_packets: counts.other_runs,
            foreign_packets: counts.foreign,
            clock_skew_packets: counts.clock_skew,
            split_flows: (0..flows).filter(split).count(),
            latency: Latency::new(lanes),
        }
    }
}

impl Latency {
    fn new(lanes: &[LaneResult]) -> Option<Self> {
        let mut all = new_histogram();
        for lane in lanes {
            all.add(&lane.latency).ok()?; // cannot fail: the bounds are the same
        }
        (!all.is_empty()).then(|| Self {
            samples: all.len(),
            minimum_ns: all.min(),
            mean_ns: all.mean(),
            p50_ns: all.value_at_quantile(0.5),
            p90_ns: all.value_at_quantile(0.9),
            p99_ns: all.value_at_quantile(0.99),
            p99_9_ns: all.value_at_quantile(0.999),
            maximum_ns: all.max(),
        })
    }
}

fn total(tallies: impl Iterator<Item = Tally>) -> Tally {
    tallies.fold(Tally::default(), Tally::merge)
}

#[cfg(test)]
mod tests;
