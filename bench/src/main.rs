//! Measures the cost of the framework. See `fastlane-bench --help` and ARCHITECTURE.md, "How we
//! measure".
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use fastlane_bench::Result;
use fastlane_bench::device::application;
use fastlane_bench::loops::lookup;
use fastlane_bench::report::Report;
use fastlane_bench::report::markdown;
use fastlane_bench::scenarios::{self, Options};
use fastlane_bench::slices::Effort;

/// Measure what the framework costs against the same work written by hand.
///
/// Contenders run in alternating slices. The result is a ratio or a difference of CPU time per
/// packet with its 95 % interval. An interval wider than 4 % is not resolved and does not pass.
/// Traffic stays in memory or in a network namespace that ends with the program. The namespace
/// needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF; `memory`, `in-c`, `dpdk`, the `memif`
/// measurements and `lanes` need none of them. `lanes` and `upf-lanes` need nothing but CPUs.
#[derive(Parser)]
struct Arguments {
    /// Measurement to run.
    #[arg(value_enum, default_value_t = Measurement::All)]
    what: Measurement,
    /// Number of pairs of slices; a meaningful result needs at least 31.
    #[arg(long, default_value_t = 31)]
    pairs: usize,
    /// Use few and short slices, to check that everything works. The figures are meaningless.
    #[arg(long)]
    quick: bool,
    /// Number of rounds of measurements that do not use pairs.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of lanes that run at once, in `lanes` and `upf-lanes`.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    lanes: Vec<usize>,
    /// Number of slots in the rings of `upf-flood`: a power of two from 64 to 16384. The default is
    /// that of the rings of a Fastlane port.
    #[arg(long, default_value = "2048", value_parser = log2_ring)]
    ring: u8,
    /// Folder for the results; each run adds new files.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// The whole loop on a memory port, against plain C on {pointer, length}.
    Memory,
    /// The macswap in C against the one in Rust, on a memory port.
    InC,
    /// DPDK on net_ring and net_null, against testpmd and a loop written by hand.
    Dpdk,
    /// CPU time per packet over memif: native, on DPDK, testpmd, in C.
    Memif,
    /// Round trips over memif at 1,000 to 1,000,000 frames a second.
    MemifRoundTrip,
    /// AF_XDP on veth, against a loop written by hand on the same rings.
    AfXdp,
    /// AF_XDP against AF_PACKET on veth.
    AfPacket,
    /// CPU by load and idle policy.
    Idle,
    /// Latency of single frames on veth.
    RoundTrip,
    /// Figure 1: every mechanism with every idle policy.
    Mechanisms,
    /// Figure 2: CPU by load and mechanism.
    CpuByLoad,
    /// Figure 5: cost by size of the frame, with the framework and without.
    Sizes,
    /// Figure 6: cost per packet and lane by number of lanes.
    Lanes,
    /// Exact match against rte_hash, in bulks of 32.
    Tables,
    /// Longest prefix against rte_fib, rte_lpm and the best crate.
    Prefixes,
    /// Classification of packets by 10 to 10,000 rules against rte_acl.
    Classifiers,
    /// Subscribers' state under a lock, against one lane for each subscriber.
    Subscriber,
    /// Cost of routing over macswap, by routes and destinations.
    Router,
    /// Cost of flows with NAT over macswap, by their number.
    Flows,
    /// Cost of a firewall with NAT in the kernel: the kernel tier beside Linux.
    Firewall,
    /// Cost of a firewall with NAT in a lane on AF_XDP, beside Linux.
    FirewallLane,
    /// Cost of new connections through a firewall with NAT: the kernel tier beside Linux.
    FirewallConnections,
    /// Cost of new connections that stay short, under rules for those that have grown, beside Linux
    /// with the same rules: one row of `firewall-connections`, for many pairs.
    FirewallGrown,
    /// Cost of the user plane over macswap, by sessions and their rules.
    Upf,
    /// Cost of the user plane by PDRs and SDF filters, and by the filter that matches.
    UpfRules,
    /// Gb/s of one core by the length of users' packets, on AF_XDP and on sockets (figure 7).
    UpfSizes,
    /// Cost of NAT in the user plane over the user plane without it.
    UpfNat,
    /// CPU time per packet of the programs `upf` and `macswap` over memif.
    UpfMemif,
    /// Cost of the user plane per lane, by number of lanes.
    UpfLanes,
    /// macswap in a pod of Kubernetes against macswap on the host; needs root.
    Pod,
    /// Established traffic of the user plane under a flood: loss, p99, replies, cost of junk.
    UpfFlood,
    /// Run every measurement.
    All,
}

type Measure = fn(&mut Report, &Options) -> Result<()>;

const MEASUREMENTS: [(Measurement, Measure); 31] = [
    (Measurement::Memory, scenarios::memory),
    (Measurement::InC, scenarios::in_c),
    (Measurement::Dpdk, scenarios::dpdk),
    (Measurement::Memif, scenarios::memif),
    (Measurement::MemifRoundTrip, scenarios::memif_round_trips),
    (Measurement::AfXdp, scenarios::af_xdp),
    (Measurement::AfPacket, scenarios::af_packet),
    (Measurement::Idle, scenarios::idle),
    (Measurement::RoundTrip, scenarios::round_trips),
    (Measurement::Mechanisms, scenarios::mechanisms),
    (Measurement::CpuByLoad, scenarios::cpu_by_load),
    (Measurement::Sizes, scenarios::sizes),
    (Measurement::Lanes, scenarios::lanes),
    (Measurement::Tables, scenarios::hash),
    (Measurement::Prefixes, scenarios::prefixes),
    (Measurement::Classifiers, scenarios::classifiers),
    (Measurement::Subscriber, scenarios::subscriber),
    (Measurement::Router, scenarios::router),
    (Measurement::Flows, scenarios::flows),
    (Measurement::Firewall, scenarios::firewall),
    (Measurement::FirewallLane, scenarios::firewall_lane),
    (Measurement::FirewallConnections, scenarios::firewall_connections),
    (Measurement::FirewallGrown, scenarios::firewall_grown),
    (Measurement::Upf, scenarios::upf),
    (Measurement::UpfRules, scenarios::upf_rules),
    (Measurement::UpfSizes, scenarios::upf_sizes),
    (Measurement::UpfNat, scenarios::upf_nat),
    (Measurement::UpfMemif, scenarios::upf_memif),
    (Measurement::UpfLanes, scenarios::upf_lanes),
    (Measurement::Pod, scenarios::pod),
    (Measurement::UpfFlood, scenarios::upf_flood),
];

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == application::LOOP) {
        return ExitCode::from(application::run(std::env::args_os().skip(1)));
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.split_first() {
        Some((first, rest)) if first == lookup::LOOKUPS => lookup::serve(rest),
        _ => run(&Arguments::parse()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fastlane-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the base-2 logarithm of the number of slots in a ring.
fn log2_ring(places: &str) -> std::result::Result<u8, String> {
    match places.parse::<u32>() {
        Ok(places) if places.is_power_of_two() && (64..=16_384).contains(&places) => {
            Ok(places.trailing_zeros() as u8)
        }
        _ => Err("a ring has a power of two of slots, from 64 to 16384".to_owned()),
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { what, pairs, quick, rounds, .. } = *arguments;
    let effort = match quick {
        true => Effort { pairs: pairs.min(5), slice: Duration::from_millis(100) },
        false => Effort { pairs, slice: Duration::from_millis(500) },
    };
    let rounds = if quick { 1 } else { rounds };
    let (lanes, log2_ring) = (arguments.lanes.clone(), arguments.ring);
    let options = Options { effort, rounds, lanes, log2_ring };
    let mut report = Report::begin(effort);
    let wanted = MEASUREMENTS.iter().filter(|(one, _)| what == *one || what == Measurement::All);
    for (one, measure) in wanted {
        // A failed measurement must not stop the others.
        if let Err(error) = measure(&mut report, &options) {
            let name = one.to_possible_value().map(|value| value.get_name().to_owned());
            report.leave_out(&name.unwrap_or_default(), &*error);
        }
    }
    report.end();
    // First: a folder that cannot be written loses no measurement.
    print!("{}", markdown::tables(&report));
    let files = report.publish(&arguments.results)?;
    for file in files {
        eprintln!("wrote {}", file.display());
    }
    match report.left_out.len() {
        0 => Ok(()),
        count => Err(format!("{count} measurements failed; the report lists the reasons").into()),
    }
}
