//! Measures what the framework costs. See `fastlane-bench --help` and ARCHITECTURE.md, "How we
//! measure".
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use fastlane_bench::by_hand::Compiled;
use fastlane_bench::echo::{self, Match};
use fastlane_bench::idle::{self, LOADS, POLICIES};
use fastlane_bench::report::{Comparison, IdleLine, Kind, Report, RoundTrip, Spread};
use fastlane_bench::slices::Effort;
use fastlane_bench::veth::in_namespace;
use fastlane_bench::{Result, application, c_app, dpdk, markdown, memory, round_trip};

/// Measure what the framework costs against the same work written by hand.
///
/// Contenders run in alternating slices; the result is a ratio or a difference of CPU time per
/// packet with its 95 % interval. An interval wider than 4 % resolves nothing, and is no pass.
/// Traffic stays in a network namespace that ends with the program, which needs CAP_SYS_ADMIN,
/// CAP_NET_ADMIN and CAP_BPF for all but `memory`.
#[derive(Parser)]
struct Arguments {
    /// What to measure.
    #[arg(value_enum, default_value_t = What::All)]
    what: What,
    /// Pairs of slices, at least 31 for a result that means something.
    #[arg(long, default_value_t = 31)]
    pairs: usize,
    /// Few and short slices: to see that everything works, not for figures.
    #[arg(long)]
    quick: bool,
    /// Where the results go; each run adds files of its own.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The whole loop on a memory port, against plain C on {pointer, length}.
    Memory,
    /// The macswap in C against the one in Rust, on a memory port.
    InC,
    /// DPDK on net_ring and net_null, against testpmd and a loop written by hand.
    Dpdk,
    /// AF_XDP on veth, against a loop written by hand on the same rings.
    AfXdp,
    /// AF_XDP against AF_PACKET on veth.
    AfPacket,
    /// CPU by load and idle policy.
    Idle,
    /// Latency of single frames.
    RoundTrip,
    /// Everything.
    All,
}

impl What {
    fn includes(self, other: Self) -> bool {
        self == other || self == Self::All
    }
}

/// Rounds of what is not measured in pairs.
const ROUNDS: usize = 5;
/// Goals: see the README.
const MEMORY_BOUND: f64 = 2.0;
const C_BOUND: f64 = 1.03;
const AF_XDP_BOUND: f64 = 1.05;
const DPDK_BOUND: f64 = 1.5;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == application::LOOP) {
        return ExitCode::from(application::run(std::env::args_os().skip(1)));
    }
    let arguments = Arguments::parse();
    let effort = match arguments.quick {
        true => Effort { pairs: arguments.pairs.min(5), slice: Duration::from_millis(100) },
        false => Effort { pairs: arguments.pairs, slice: Duration::from_millis(500) },
    };
    match run(&arguments, effort) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fastlane-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, effort: Effort) -> Result<()> {
    let what = arguments.what;
    let mut report = Report::begin(effort);
    if what.includes(What::Memory) {
        report.comparisons.extend(memory_port(effort)?);
    }
    if what.includes(What::InC) {
        report.comparisons.push(in_c(effort)?);
    }
    if what.includes(What::Dpdk) {
        dpdk_devices(&mut report, effort)?;
    }
    if what.includes(What::AfXdp) {
        echoes(&mut report, effort, Match::AgainstRings)?;
        echoes(&mut report, effort, Match::Control)?;
    }
    if what.includes(What::AfPacket) {
        echoes(&mut report, effort, Match::AgainstAfPacket)?;
    }
    let rounds = if arguments.quick { 2 } else { ROUNDS };
    if what.includes(What::Idle) {
        report.idle = idle_policies(rounds, effort)?;
    }
    if what.includes(What::RoundTrip) {
        report.round_trips = round_trips(rounds, effort)?;
    }
    report.end();
    let files = report.publish(&arguments.results)?;
    print!("{}", markdown::tables(&report));
    for file in files {
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}

fn memory_port(effort: Effort) -> Result<Vec<Comparison>> {
    let bursts = [32, 8, 1];
    let results = memory::compare(effort, &bursts, |number| {
        eprintln!("memory port: pair {} of {}", number + 1, effort.pairs);
    })?;
    let comparison = |(burst, pairs)| {
        let work = format!("macswap in memory, burst {burst}");
        let names = [work, "whole loop".to_owned(), "plain C".to_owned()];
        let bound = (burst == 32).then_some(MEMORY_BOUND);
        Comparison::new(names, pairs, Kind::Difference, bound)
    };
    Ok(bursts.into_iter().zip(results).map(comparison).collect())
}

fn in_c(effort: Effort) -> Result<Comparison> {
    let compiled = c_app::Compiled::new()?;
    let pairs = c_app::compare(&compiled, &c_app::memory(), 32, effort, |number| {
        eprintln!("in C and in Rust: pair {} of {}", number + 1, effort.pairs);
    })?;
    let names = ["macswap in memory, burst 32", "in C", "in Rust"].map(str::to_owned);
    Ok(Comparison::new(names, pairs, Kind::Ratio, Some(C_BOUND)))
}

fn dpdk_devices(report: &mut Report, effort: Effort) -> Result<()> {
    use dpdk::{Device, Setting, Who};
    let compiled = Compiled::new()?;
    for (device, name) in [(Device::Ring, "net_ring"), (Device::Null(64), "net_null")] {
        for (ours, rival, bound) in [
            (Who::Fastlane, Who::Testpmd, Some(DPDK_BOUND)),
            (Who::Fastlane, Who::ByHand, Some(DPDK_BOUND)),
            (Who::ByHand, Who::Testpmd, None),
        ] {
            let setting = Setting { device, burst: 32, length: 60 };
            let pairs = dpdk::compare([ours, rival], setting, &compiled, effort, |number| {
                eprintln!("{name}, {ours} and {rival}: pair {} of {}", number + 1, effort.pairs);
            })?;
            let names =
                [format!("macswap on {name}, burst 32"), ours.to_string(), rival.to_string()];
            report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
        }
    }
    Ok(())
}

fn echoes(report: &mut Report, effort: Effort, which: Match) -> Result<()> {
    let (ours, rival, bound) = match which {
        Match::AgainstRings => ("AF_XDP", "rings by hand", Some(AF_XDP_BOUND)),
        Match::AgainstAfPacket => ("AF_XDP", "AF_PACKET", None),
        Match::Control => ("rings by hand", "rings by hand", None),
    };
    // Lengths on the wire are four more: the frame check sequence.
    let sizes: &[(usize, &str)] = match which {
        Match::Control => &[(60, "64 B")],
        _ => &[(60, "64 B"), (1496, "1500 B")],
    };
    for (length, size) in sizes {
        let pairs = in_namespace(|| {
            echo::compare(which, *length, effort, |number| {
                eprintln!("{ours} and {rival}, {size}: pair {} of {}", number + 1, effort.pairs);
            })
        })?;
        let work = match which {
            Match::Control => format!("control: {size} twice by hand"),
            _ => format!("{size} echoed on veth"),
        };
        let names = [work, ours.to_owned(), rival.to_owned()];
        report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, bound));
    }
    Ok(())
}

fn idle_policies(rounds: usize, effort: Effort) -> Result<Vec<IdleLine>> {
    let mut all = Vec::new();
    for round in 0..rounds {
        eprintln!("CPU by load: round {} of {rounds}", round + 1);
        all.push(in_namespace(|| idle::round(effort.slice))?);
    }
    let mut lines = Vec::new();
    for (index, policy) in POLICIES.iter().enumerate() {
        for (place, load) in LOADS.into_iter().enumerate() {
            let over = |value: fn(&idle::Usage) -> f64| {
                let values: Vec<f64> =
                    all.iter().map(|round| value(&round[index][place])).collect();
                Spread::of(&values)
            };
            let policy = format!("{policy:?}").to_lowercase();
            let (core, rate) = (over(|usage| usage.core), over(|usage| usage.rate));
            lines.push(IdleLine { policy, load, core, rate });
        }
    }
    Ok(lines)
}

fn round_trips(rounds: usize, effort: Effort) -> Result<Vec<RoundTrip>> {
    let mut all = Vec::new();
    for round in 0..rounds {
        eprintln!("round trips: round {} of {rounds}", round + 1);
        let measure = |(mechanism, idle, apart)| {
            in_namespace(|| round_trip::measure(mechanism, idle, apart, effort.slice))
        };
        let trips: Result<Vec<_>> = round_trip::CASES.into_iter().map(measure).collect();
        all.push(trips?);
    }
    let line = |(place, (mechanism, idle, apart)): (usize, (echo::Mechanism, _, bool))| {
        let of = |value: fn(&round_trip::Trip) -> f64| {
            let values: Vec<f64> = all.iter().map(|round| value(&round[place])).collect();
            Spread::of(&values)
        };
        RoundTrip {
            mechanism: mechanism.to_string(),
            policy: format!("{idle:?}").to_lowercase(),
            pace: if apart { "1,000 a second" } else { "one after the other" }.to_owned(),
            p50_us: of(|trip| trip.p50),
            p99_us: of(|trip| trip.p99),
            frames: all.iter().map(|round| round[place].frames).sum(),
            lost: all.iter().map(|round| round[place].lost).sum(),
        }
    };
    Ok(round_trip::CASES.into_iter().enumerate().map(line).collect())
}
