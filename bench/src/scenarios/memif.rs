//! Macswap over memif: CPU time per packet and round-trip times.

use std::time::Duration;

use crate::Result;
use crate::device::memif_server::{self, Device, MemifContender};
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::rivals::dpdk_loop::Compiled;
use crate::scenarios::Options;
use crate::slices::Pairs;
use crate::statistics::quantile;

/// Compared programs with the upper bound of their ratio.
const MATCHES: [(MemifContender, MemifContender, Option<f64>); 4] = [
    (MemifContender::OnDpdk, MemifContender::Testpmd, Some(1.05)),
    (MemifContender::Native, MemifContender::OnDpdk, Some(1.0)),
    (MemifContender::Native, MemifContender::Testpmd, Some(1.0)),
    (MemifContender::NativeInC, MemifContender::Native, Some(1.02)),
];
/// Rates in frames per second.
const RATES: [(f64, &str); 3] = [(1e3, "1,000/s"), (1e5, "100,000/s"), (1e6, "1,000,000/s")];
/// Upper bound of the difference to testpmd's round trip, in nanoseconds.
const LATER: f64 = 50.0;
/// Maximum duration of a round of round trips at one rate.
const TRIPS: Duration = Duration::from_millis(150);
/// Number of rounds after which the programs are restarted.
const RESTART: usize = 8;

/// Measures the CPU time per packet over memif.
///
/// # Errors
/// Returns an error if a program does not run or loses a frame.
pub fn memif(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    let title = "CPU time per packet over memif in slices of 50 ms, ns: how they are spread";
    let mut spread = Figure::new("memif-spread", title, "Part of the slices", Style::Lines);
    for (length, size) in [(60, "64 B"), (1020, "1024 B")] {
        for (ours, rival, bound) in MATCHES {
            let what = format!("memif, {size}, {ours} and {rival}");
            let tell = |number| options.tell(&what, number);
            let (pairs, turns) =
                memif_server::compare([ours, rival], length, options.effort, &compiled, tell)?;
            let names =
                [format!("{size} over memif, burst 32"), ours.to_string(), rival.to_string()];
            report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, bound));
            for (who, turns) in [ours, rival].into_iter().zip(turns) {
                for percent in [0, 5, 25, 50, 75, 95] {
                    let value = quantile(&turns, f64::from(percent) / 100.0);
                    spread.add(&format!("{who}, {size}"), &format!("{percent} %"), value);
                }
            }
        }
    }
    report.figures.push(spread);
    Ok(())
}

/// Measures round trips at several rates, with all devices in each round.
///
/// # Errors
/// Returns an error if a program does not run or loses a frame.
pub fn memif_round_trips(report: &mut Report, options: &Options) -> Result<()> {
    const WHO: [MemifContender; 3] =
        [MemifContender::Native, MemifContender::OnDpdk, MemifContender::Testpmd];
    let compiled = Compiled::new()?;
    let time = TRIPS.min(options.effort.slice);
    let title = "Round trip of 64 B over memif, µs";
    let mut figure = Figure::new("memif-round-trips", title, "Frames", Style::Bars);
    let mut medians: [[Vec<f64>; WHO.len()]; RATES.len()] = Default::default();
    let mut devices = Vec::new();
    for round in 0..options.effort.pairs {
        options.tell("round trips over memif", round);
        if round % RESTART == 0 {
            devices.clear();
            for who in WHO {
                devices.push(Device::start(who, 60, "busy", &compiled)?);
            }
        }
        for (&(rate, pace), medians) in RATES.iter().zip(&mut medians) {
            for number in 0..WHO.len() {
                // The order changes from round to round, as in pairs.
                let number = (number + round) % WHO.len();
                let run = |client: &mut memif_server::Client| client.paced(rate, time);
                let (mut trips, _) = devices[number].during(run)?;
                for (at, name) in [(0.5, "p50"), (0.99, "p99")] {
                    let place = format!("{name} at {pace}");
                    figure.add(&WHO[number].to_string(), &place, trips.quantile(at));
                }
                medians[number].push(1000.0 * trips.quantile(0.5));
            }
        }
    }
    for ((_, pace), [native, on_dpdk, testpmd]) in RATES.into_iter().zip(medians) {
        for (who, ours) in [(MemifContender::Native, native), (MemifContender::OnDpdk, on_dpdk)] {
            let work = format!("round trip over memif, p50 at {pace}");
            let names = [work, who.to_string(), MemifContender::Testpmd.to_string()];
            let pairs = Pairs { ours, rival: testpmd.clone() };
            let comparison = Comparison::new(names, pairs, Kind::Difference, Some(LATER));
            report.comparisons.push(comparison);
        }
    }
    report.figures.push(figure);
    Ok(())
}
