//! Rates between two samples.

use std::time::Duration;

use fastlane::counters::{DownReason, LaneCounter, PortCounter};

use super::sample::{LaneTotals, PortTotals, Sample};

/// Rates between two samples, per second.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) elapsed: Duration,
    pub(super) lanes: Vec<LaneRates>,
    pub(super) ports: Vec<PortRates>,
}

/// Rates of a lane.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaneRates {
    pub(super) lane: usize,
    /// CPU that the lane runs on.
    pub(super) cpu: u64,
    /// Share of the CPU that the lane used, 0 to 1; `None` if it is not visible.
    pub(super) cpu_share: Option<f64>,
    pub(super) turns: f64,
    /// Share of the turns with work.
    pub(super) busy_share: f64,
    pub(super) sleeps: f64,
    pub(super) pool_free: u64,
    pub(super) pool_frames: u64,
    /// Share of the busiest shard in the packets that the lane classified.
    pub(super) busiest: f64,
    /// Page faults since the first turn: minor, then major.
    pub(super) page_faults: [u64; 2],
    pub(super) ended: bool,
}

/// Rates of a port in a lane, or outside the lanes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PortRates {
    pub(super) lane: Option<usize>,
    /// Index of the port.
    pub(super) port: usize,
    pub(super) received: f64,
    pub(super) received_bits: f64,
    /// Packets passed to the application in this lane, wherever they arrived.
    pub(super) shown: f64,
    /// Packets passed to the lane of their key; `None` if there was none since the start.
    pub(super) passed: Option<f64>,
    pub(super) sent: f64,
    pub(super) sent_bits: f64,
    /// Each verdict and its share of the packets received.
    pub(super) verdicts: Vec<(&'static str, f64)>,
    /// Each drop reason since the start: current rate and total.
    pub(super) drops: Vec<(&'static str, f64, u64)>,
    /// Steering results since the start, with their rates.
    pub(super) steered: Vec<(&'static str, f64)>,
    /// Reason why the port is down; only outside the lanes.
    pub(super) down: Option<&'static str>,
}

impl Rates {
    /// Computes the rates from `before` to `after`, two samples of one application.
    pub(super) fn between(before: &Sample, after: &Sample) -> Self {
        let elapsed = after.taken.saturating_duration_since(before.taken);
        // Avoids a division by zero if both samples have the same time.
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let ports = after.application.ports.len().max(1);
        Self {
            elapsed,
            lanes: before
                .lanes
                .iter()
                .zip(&after.lanes)
                .map(|(before, after)| lane(before, after, seconds))
                .collect(),
            ports: before
                .ports
                .iter()
                .zip(&after.ports)
                .enumerate()
                .map(|(place, (before, after))| port(place % ports, before, after, seconds))
                .collect(),
        }
    }
}

fn lane(before: &LaneTotals, after: &LaneTotals, seconds: f64) -> LaneRates {
    let value = |counter| after.counters.of(counter);
    let grown = |counter| value(counter).wrapping_sub(before.counters.of(counter)) as f64;
    let turns = grown(LaneCounter::Turn);
    let used = before.cpu_seconds.zip(after.cpu_seconds).map(|(before, after)| after - before);
    LaneRates {
        lane: after.lane,
        cpu: value(LaneCounter::Cpu),
        cpu_share: used.map(|used| (used / seconds).max(0.0)),
        turns: turns / seconds,
        busy_share: share(grown(LaneCounter::BusyTurns), turns),
        sleeps: grown(LaneCounter::Sleeps) / seconds,
        pool_free: value(LaneCounter::PoolFree),
        pool_frames: value(LaneCounter::PoolFrames),
        busiest: value(LaneCounter::BusiestShard) as f64 / 1000.0,
        page_faults: [LaneCounter::MinorPageFaults, LaneCounter::MajorPageFaults].map(value),
        ended: value(LaneCounter::Ended) != 0,
    }
}

fn port(port: usize, before: &PortTotals, after: &PortTotals, seconds: f64) -> PortRates {
    let value = |counter| after.counters.of(counter);
    let grown = |counter| value(counter).wrapping_sub(before.counters.of(counter)) as f64;
    let named = |prefix: &'static str| {
        PortCounter::ALL
            .into_iter()
            .filter_map(move |counter| Some((counter, counter.name().strip_prefix(prefix)?)))
    };
    let verdicts: Vec<_> =
        named("verdict_").map(|(counter, name)| (name, grown(counter))).collect();
    let labelled: f64 = verdicts.iter().map(|(_, count)| count).sum();
    PortRates {
        lane: after.lane,
        port,
        received: grown(PortCounter::ReceivedPackets) / seconds,
        received_bits: grown(PortCounter::ReceivedBytes) * 8.0 / seconds,
        shown: labelled / seconds,
        passed: (value(PortCounter::PassedPackets) > 0)
            .then(|| grown(PortCounter::PassedPackets) / seconds),
        sent: grown(PortCounter::SentPackets) / seconds,
        sent_bits: grown(PortCounter::SentBytes) * 8.0 / seconds,
        verdicts: verdicts
            .into_iter()
            .filter(|(_, count)| *count > 0.0)
            .map(|(name, count)| (name, share(count, labelled)))
            .collect(),
        drops: named("drop_")
            .filter(|(counter, _)| value(*counter) > 0)
            .map(|(counter, name)| (name, grown(counter) / seconds, value(counter)))
            .collect(),
        steered: named("steer_")
            .filter(|(counter, _)| value(*counter) > 0)
            .map(|(counter, name)| (name, grown(counter) / seconds))
            .collect(),
        down: DownReason::from_number(value(PortCounter::DownReason)).map(DownReason::name),
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}
