//! What a run has shown.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::settings::{Mode, Settings};
use crate::sink::{Counts, new_histogram};
use crate::tally::Tally;

/// What one lane has counted.
#[derive(Clone, Debug)]
pub struct LaneResult {
    /// Handed to the port.
    pub sent: Tally,
    /// Not sent: longer than the lane's frames.
    pub too_long: u64,
    /// Due by the rate, but not sent in time.
    pub skipped: u64,
    /// On their way for longer than the answer timeout.
    pub given_up: u64,
    /// Came back or in, once at least.
    pub received: Tally,
    /// The other arrivals.
    pub counts: Counts,
    /// For each flow, one more than the highest number that came here.
    pub expected: Vec<u64>,
    /// Nanoseconds from sending to arrival.
    pub latency: Histogram<u64>,
}

/// All lanes together. As JSON its keys are in kebab case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Which way the frames went.
    pub mode: Mode,
    /// The number of the run.
    pub run: u16,
    /// Whether the run came to its end, rather than being interrupted: then what was on its way
    /// counts as lost.
    pub complete: bool,
    /// Lanes that ran.
    pub lanes: usize,
    /// Flows in the set.
    pub flows: usize,
    /// The rate that was asked for; 0 is as fast as possible.
    pub wanted_packets_per_second: u64,
    /// Sent; absent with `receive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Direction>,
    /// Packets that were due by the rate but not sent: the lane was kept from running for longer
    /// than a burst takes, or waited for answers.
    pub skipped_packets: u64,
    /// Packets not sent because they are longer than the lane's frames.
    pub too_long_packets: u64,
    /// Packets that were on their way for longer than the answer timeout; they may still have come.
    pub given_up_packets: u64,
    /// Received, each once; absent with `send`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
}

/// Packets in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Direction {
    /// How many.
    pub packets: u64,
    /// Bytes in them, without frame check sequences.
    pub bytes: u64,
    /// Packets a second, from the first burst to the last one.
    pub packets_per_second: f64,
    /// Bits a second, counted as `bytes`.
    pub bits_per_second: f64,
}

/// What came, and what did not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Received {
    /// Intact, each once.
    #[serde(flatten)]
    pub direction: Direction,
    /// Sent, but neither received nor corrupted. With `receive`: the gaps between the numbers;
    /// what is missing after the last one is not known.
    pub lost_packets: u64,
    /// Of a million sent.
    pub lost_ppm: f64,
    /// Arrived again.
    pub duplicated_packets: u64,
    /// Arrived after a later one of their flow (RFC 4737).
    pub reordered_packets: u64,
    /// Arrived damaged.
    pub corrupted_packets: u64,
    /// Arrived so late that they may be duplicates: raise `window-packets`. Counted as lost.
    pub ancient_packets: u64,
    /// Of another run, or of a flow that is not set here.
    pub other_run_packets: u64,
    /// Not ours: left to Linux.
    pub foreign_packets: u64,
    /// Sent in the future: the sender's clock is another.
    pub clock_skew_packets: u64,
    /// Flows that arrived at more than one lane: what was duplicated or reordered between lanes is
    /// not seen, and lost packets may hide behind such duplicates.
    pub split_flows: usize,
    /// From sending to arrival; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Latencies in nanoseconds, to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names say it")]
pub struct Latency {
    /// How many were measured: the warm-up and duplicates are not.
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
    /// `sent` is known unless another process sends.
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
