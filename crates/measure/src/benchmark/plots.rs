//! Plots of a benchmark, as SVG.

use super::results::{ComparisonResult, LoadResult, Results, SizeResult};
use crate::chart::{Chart, Line, Ratios, distribution, grid, points};

/// Plot with its title and file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) file: &'static str,
    pub(super) svg: String,
}

/// Draws the plots for which results exist.
pub(super) fn plots(results: &Results) -> Vec<Plot> {
    let mut plots = Vec::new();
    let mut add = |title, file, svg| plots.push(Plot { title, file, svg });
    let sizes = &results.sizes;
    if sizes.iter().any(|size| size.throughput.is_some()) {
        add("Throughput by frame size", "throughput.svg", grid(&throughput(sizes), 2));
    }
    if sizes.iter().any(|size| !size.loads.is_empty()) {
        add("Latency by load", "latency.svg", grid(&latency(sizes), 2));
        add("CPU of the device by load", "cpu.svg", grid(&cpu(results), 2));
    }
    if !results.comparisons.is_empty() {
        let rows: Vec<Ratios> = results.comparisons.iter().map(ratios).collect();
        let title = "CPU time per packet, the device's by the rival's: a dot is a pair of slices";
        add("Comparison", "comparison.svg", distribution(title, &rows));
    }
    plots
}

fn throughput(sizes: &[SizeResult]) -> [Chart; 2] {
    let categories: Vec<String> = sizes.iter().map(|size| size.frame_size.to_string()).collect();
    let rates = sizes.iter().map(|size| size.throughput.as_ref()?.packets_per_second);
    let bits = sizes.iter().map(|size| size.throughput.as_ref()?.bits_per_second);
    let gigabits = bits.map(|bits| bits.map_or(f64::NAN, |bits| bits / 1e9));
    let chart = |title: &str, points| Chart {
        title: title.to_owned(),
        categories: categories.clone(),
        logarithmic: false,
        lines: vec![Line { name: "no loss".to_owned(), points }],
    };
    [
        chart("Throughput, packets/s (median, lowest to highest)", rates.collect()),
        chart("Throughput, Gb/s of frames", points(gigabits)),
    ]
}

/// Name of a curve, and the function that reads its value from a result.
type Reading<T> = (&'static str, fn(&T) -> f64);

fn latency(sizes: &[SizeResult]) -> Vec<Chart> {
    let readings: [Reading<LoadResult>; 4] = [
        ("p50", |load| load.trial.latency.map_or(f64::NAN, |it| it.p50_ns as f64 / 1e3)),
        ("p90", |load| load.trial.latency.map_or(f64::NAN, |it| it.p90_ns as f64 / 1e3)),
        ("p99", |load| load.trial.latency.map_or(f64::NAN, |it| it.p99_ns as f64 / 1e3)),
        ("p99.9", |load| load.trial.latency.map_or(f64::NAN, |it| it.p99_9_ns as f64 / 1e3)),
    ];
    let chart = |size: &SizeResult| Chart {
        title: format!("Round trip of {}, us, by load", size.frame_size),
        categories: size.loads.iter().map(percent).collect(),
        logarithmic: true,
        lines: readings.iter().map(|reading| line(&size.loads, reading)).collect(),
    };
    sizes.iter().filter(|size| !size.loads.is_empty()).map(chart).collect()
}

fn line(loads: &[LoadResult], (name, read): &Reading<LoadResult>) -> Line {
    Line { name: (*name).to_owned(), points: points(loads.iter().map(read)) }
}

fn percent(load: &LoadResult) -> String {
    format!("{} %", load.load_percent)
}

fn cpu(results: &Results) -> [Chart; 2] {
    let loads = results.sizes.iter().find(|size| !size.loads.is_empty());
    let categories: Vec<String> =
        loads.map(|size| size.loads.iter().map(percent).collect()).unwrap_or_default();
    let lines = |read: fn(&LoadResult) -> f64, idle: Option<f64>| {
        let line = |size: &SizeResult| Line {
            name: size.frame_size.to_string(),
            points: points(idle.into_iter().chain(size.loads.iter().map(read))),
        };
        results.sizes.iter().map(line).collect()
    };
    let idle = results.idle_cores.map(|_| "0 %".to_owned());
    [
        Chart {
            title: "CPU time of the device, ns per packet, by load".to_owned(),
            categories: categories.clone(),
            logarithmic: false,
            lines: lines(|load| load.device_ns_per_packet, None),
        },
        Chart {
            title: "CPU of the device, cores, by load".to_owned(),
            categories: idle.into_iter().chain(categories).collect(),
            logarithmic: false,
            lines: lines(|load| load.device_cores, results.idle_cores),
        },
    ]
}

fn ratios(comparison: &ComparisonResult) -> Ratios {
    let ours = comparison.device_ns_per_packet.iter();
    Ratios {
        name: if comparison.control { "control: with itself" } else { "device by rival" }
            .to_owned(),
        values: ours.zip(&comparison.rival_ns_per_packet).map(|(ours, its)| ours / its).collect(),
        estimate: comparison.ratio,
        bound: comparison.bound,
    }
}
