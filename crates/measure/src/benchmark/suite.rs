//! Tests of RFC 2544 and RFC 8219, for each frame size.

use std::time::Duration;

use serde_json::json;

use super::description::{Description, FrameSize, Mix, Test};
use super::results::{BackToBackResult, LoadResult, SizeResult, ThroughputResult};
use super::rig::Rig;
use super::search::{longest_burst, search};
use super::trial::{Limit, Outcome};
use crate::Result;
use crate::statistics::{Spread, median};

/// Duration of the measurement without load.
const IDLE: Duration = Duration::from_millis(500);

/// Measures the CPU use of the device without load, in cores.
pub(super) fn idle(rig: &Rig) -> Result<f64> {
    // The work caused by the start and the first frames ends before the measurement.
    std::thread::sleep(IDLE / 2);
    rig.idle_cores(IDLE)
}

/// Runs all tests with frames of one size, except the comparison.
pub(super) fn size(
    rig: &mut Rig,
    description: &Description,
    frame_size: FrameSize,
) -> Result<SizeResult> {
    let mut result =
        SizeResult { frame_size, throughput: None, loads: Vec::new(), back_to_back: None };
    // Latency is measured at parts of the throughput.
    let rate = if description.makes(Test::Throughput) || description.makes(Test::Latency) {
        let throughput = throughput(rig, description, frame_size)?;
        let rate = throughput.packets_per_second.map(|spread| spread.median);
        result.throughput = Some(throughput);
        rate
    } else {
        None
    };
    if let Some(rate) = rate.filter(|_| description.makes(Test::Latency)) {
        for load in &description.latency.loads_percent {
            result.loads.push(at_load(rig, description, frame_size, rate, *load)?);
        }
    }
    if description.makes(Test::BackToBack) {
        result.back_to_back = Some(back_to_back(rig, description, frame_size)?);
    }
    Ok(result)
}

fn throughput(
    rig: &mut Rig,
    description: &Description,
    frame_size: FrameSize,
) -> Result<ThroughputResult> {
    let settings = &description.throughput;
    let mut searches = Vec::new();
    for repeat in 1..=settings.repeats {
        let search = search(settings, |rate| {
            let outcome = rig.trial(json!({
                "frame-bytes": frame_size.for_generator(),
                "rate-packets-per-second": rate,
                "duration-ms": settings.trial_ms,
            }))?;
            let judged = match outcome.failure(settings.acceptable_loss_ppm) {
                None if outcome.is_late() => "passes, but sent late".to_owned(),
                None => "passes".to_owned(),
                Some(limit) => format!("fails by {limit}"),
            };
            say(frame_size, &format!("throughput, search {repeat}: {judged}"), &outcome);
            Ok::<_, crate::Error>(outcome)
        })?;
        searches.push(search);
    }
    let rates: Option<Vec<f64>> = searches
        .iter()
        .map(|search| search.found.as_ref().map(|it| it.offered_packets_per_second))
        .collect();
    let packets_per_second = rates.map(|rates| Spread::of(&rates));
    let bits = |spread: Spread| spread.median * mean_bytes(frame_size) * 8.0;
    Ok(ThroughputResult {
        packets_per_second,
        bits_per_second: packets_per_second.map(bits),
        limited_by: most_frequent(searches.iter().map(|search| search.limited_by)),
        searches,
    })
}

fn at_load(
    rig: &mut Rig,
    description: &Description,
    frame_size: FrameSize,
    throughput: f64,
    load_percent: f64,
) -> Result<LoadResult> {
    let rate = (throughput * load_percent / 100.0).max(1.0) as u64;
    let trial = rig.trial(json!({
        "frame-bytes": frame_size.for_generator(),
        "rate-packets-per-second": rate,
        "duration-ms": description.latency.trial_ms,
        "warm-up-percent": 10,
    }))?;
    say(frame_size, &format!("latency at {load_percent} %"), &trial);
    Ok(LoadResult {
        load_percent,
        device_ns_per_packet: trial.device_ns_per_packet(),
        device_cores: trial.device_cores(),
        trial,
    })
}

fn back_to_back(
    rig: &mut Rig,
    description: &Description,
    frame_size: FrameSize,
) -> Result<BackToBackResult> {
    let settings = &description.back_to_back;
    let (mut longest_packets, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..settings.repeats {
        let longest = longest_burst(settings.longest_packets, |packets| {
            let outcome = rig.trial(json!({
                "frame-bytes": frame_size.for_generator(),
                "count-packets": packets,
                "burst-packets": 1024,
            }))?;
            let passes = outcome.lost_packets == 0;
            if passes && packets > 1 {
                rates.push(outcome.offered_packets_per_second);
            }
            Ok::<_, crate::Error>(passes)
        })?;
        longest_packets.push(longest.unwrap_or(0));
    }
    let sum: u64 = longest_packets.iter().sum();
    let result = BackToBackResult {
        average_packets: sum as f64 / longest_packets.len() as f64,
        packets_per_second: median(&rates),
        reached_longest: longest_packets.contains(&settings.longest_packets),
        longest_packets,
    };
    eprintln!("{frame_size}: back to back: {:.0} packets without loss", result.average_packets);
    Ok(result)
}

/// Writes a line of progress.
fn say(frame_size: FrameSize, what: &str, outcome: &Outcome) {
    let Outcome { offered_packets_per_second, lost_packets, .. } = outcome;
    let latency = outcome
        .latency
        .map_or_else(String::new, |latency| format!(", p50 {:.1} us", latency.p50_ns as f64 / 1e3));
    eprintln!(
        "{frame_size}: {what}: {offered_packets_per_second:.0} packets/s, lost {lost_packets}\
         {latency}"
    );
}

/// Returns the mean frame length in bytes, with the check sequence.
fn mean_bytes(frame_size: FrameSize) -> f64 {
    match frame_size {
        FrameSize::Bytes(bytes) => f64::from(bytes),
        FrameSize::Mix(Mix::Imix) => f64::from(7 * 64 + 4 * 594 + 1518) / 12.0,
    }
}

fn most_frequent(limits: impl Iterator<Item = Limit> + Clone) -> Limit {
    let count = |limit: &Limit| limits.clone().filter(|other| other == limit).count();
    limits.clone().max_by_key(count).unwrap_or(Limit::Device)
}
