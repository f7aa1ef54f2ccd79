//! Echo measurements on veth pairs: AF_XDP and AF_PACKET.

pub mod echo;
pub mod idle;
pub mod round_trip;

use fastlane_core::Idle;

use crate::Result;
use crate::device::echo_lane::Mechanism;
use crate::device::load::Usage;
use crate::device::veth_pair::in_namespace;
use crate::report::{Comparison, IdleLine, Kind, Report, RoundTrip, Spread};
use crate::scenarios::Options;
use crate::statistics::Estimate;
use echo::Match;
use idle::{LOADS, POLICIES};

/// Upper bound of the ratio; see the README.
const AF_XDP_BOUND: f64 = 1.05;

/// Compares AF_XDP with a hand-written loop, and that loop with itself.
///
/// # Errors
/// Returns an error if the kernel refuses a request or a frame is lost.
pub fn af_xdp(report: &mut Report, options: &Options) -> Result<()> {
    echoes(report, options, Match::AgainstRings)?;
    echoes(report, options, Match::Control)
}

/// Compares AF_XDP with AF_PACKET.
///
/// # Errors
/// Returns an error if the kernel refuses a request or a frame is lost.
pub fn af_packet(report: &mut Report, options: &Options) -> Result<()> {
    echoes(report, options, Match::AgainstAfPacket)
}

fn echoes(report: &mut Report, options: &Options, which: Match) -> Result<()> {
    let (ours, rival, bound) = match which {
        Match::AgainstRings => ("AF_XDP", "rings by hand", Some(AF_XDP_BOUND)),
        Match::AgainstAfPacket => ("AF_XDP", "AF_PACKET", None),
        Match::Control => ("rings by hand", "rings by hand", None),
    };
    // Frames on the wire are four bytes longer because of the frame check sequence.
    let sizes: &[(usize, &str)] = match which {
        Match::Control => &[(60, "64 B")],
        _ => &[(60, "64 B"), (1496, "1500 B")],
    };
    for (length, size) in sizes {
        let what = format!("{ours} and {rival}, {size}");
        let pairs = in_namespace(|| {
            echo::compare(which, *length, options.effort, |number| options.tell(&what, number))
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

/// Measures CPU use by load and idle policy.
///
/// # Errors
/// Returns an error if the kernel refuses a request.
pub fn idle(report: &mut Report, options: &Options) -> Result<()> {
    let rounds = options.rounds;
    let mut all = Vec::new();
    for round in 0..rounds {
        eprintln!("CPU by load: round {} of {rounds}", round + 1);
        all.push(in_namespace(|| idle::round(options.effort.slice))?);
    }
    for (index, policy) in POLICIES.iter().enumerate() {
        for (place, load) in LOADS.into_iter().enumerate() {
            let of = |value: fn(&Usage) -> f64| -> Vec<f64> {
                all.iter().map(|round| value(&round[index][place])).collect()
            };
            let policy = format!("{policy:?}").to_lowercase();
            let core = of(|usage| usage.core);
            report.idle.push(IdleLine {
                policy,
                load,
                core: Spread::of(&core),
                core_interval: Estimate::of_median(&core),
                rate: Spread::of(&of(|usage| usage.rate)),
            });
        }
    }
    Ok(())
}

/// Measures the latency of single frames.
///
/// # Errors
/// Returns an error if the kernel refuses a request or no frame comes back.
pub fn round_trips(report: &mut Report, options: &Options) -> Result<()> {
    let rounds = options.rounds;
    let mut all = Vec::new();
    for round in 0..rounds {
        eprintln!("round trips: round {} of {rounds}", round + 1);
        let measure = |(mechanism, idle, apart)| {
            in_namespace(|| round_trip::measure(mechanism, idle, apart, options.effort.slice))
        };
        let trips: Result<Vec<_>> = round_trip::CASES.into_iter().map(measure).collect();
        all.push(trips?);
    }
    let line = |(place, (mechanism, idle, apart)): (usize, (Mechanism, _, bool))| {
        let of = |place: usize, value: fn(&round_trip::Trip) -> f64| -> Vec<f64> {
            all.iter().map(|round| value(&round[place])).collect()
        };
        let waiting = (mechanism, Idle::Interrupt, apart);
        let waiting = round_trip::CASES.iter().position(|case| *case == waiting).unwrap_or(place);
        let p50 = of(place, |trip| trip.p50);
        RoundTrip {
            mechanism: mechanism.to_string(),
            policy: format!("{idle:?}").to_lowercase(),
            pace: if apart { "1,000 a second" } else { "one after the other" }.to_owned(),
            p50_us: Spread::of(&p50),
            above_interrupt_us: Estimate::of_difference(&p50, &of(waiting, |trip| trip.p50)),
            p99_us: Spread::of(&of(place, |trip| trip.p99)),
            frames: all.iter().map(|round| round[place].frames).sum(),
            lost: all.iter().map(|round| round[place].lost).sum(),
        }
    };
    report.round_trips.extend(round_trip::CASES.into_iter().enumerate().map(line));
    Ok(())
}
