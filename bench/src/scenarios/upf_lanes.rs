//! The cost of the user plane on several lanes at once.

pub mod user_plane_lanes;

use crate::Result;
use crate::device::veth_pair::{Veth, in_namespace};
use crate::loops::user_plane::{Direction, RouteMirror};
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::lanes::parallel::cpus;
use crate::scenarios::upf_lanes::user_plane_lanes::{Packets, Shared, Work};
use crate::slices::Pairs;

/// Number of sessions of each lane, whatever the number of lanes.
const SESSIONS: u32 = 10_000;
/// Volume threshold of a URR, in octets, that is never reached.
const NEVER: u64 = 1 << 60;

/// Measures the cost of a packet in each of several lanes. All lanes share the tables, and each has
/// its own sessions.
///
/// # Errors
/// Returns an error if there is not enough memory or a packet is not forwarded.
pub fn upf_lanes(report: &mut Report, options: &Options) -> Result<()> {
    let cpus = cpus().len();
    let (fit, beyond): (Vec<usize>, Vec<usize>) =
        options.lanes.iter().partition(|&&lanes| (1..=cpus).contains(&lanes));
    if !beyond.is_empty() {
        report.left_out.push(format!("{beyond:?} lanes at once: this machine has {cpus} CPUs"));
    }
    let rounds = match in_namespace(|| Ok(())) {
        Ok(()) => in_namespace(|| {
            let veth = Veth::new(0, 60, false)?;
            rounds(&fit, options, Some(&RouteMirror::new(&veth)?))
        }),
        Err(error) => {
            eprintln!("upf-lanes: uses fixed routes instead of those of Linux: {error}");
            rounds(&fit, options, None)
        }
    };
    let (figure, comparisons) = rounds?;
    report.figures.push(figure);
    report.comparisons.extend(comparisons);
    Ok(())
}

fn rounds(
    numbers: &[usize],
    options: &Options,
    ways: Option<&RouteMirror>,
) -> Result<(Figure, Vec<Comparison>)> {
    let title = "CPU time per packet and lane by number of lanes, 10,000 sessions each, ns";
    let mut figure = Figure::new("upf-lanes", title, "Lanes", Style::Lines);
    let Some(&most) = numbers.iter().max() else { return Ok((figure, Vec::new())) };
    let shared = Shared::new(most, SESSIONS, NEVER)?;
    let mut comparisons = Vec::new();
    for direction in [Direction::Uplink, Direction::Downlink] {
        let packets: Vec<Packets> = (0..most).map(|lane| shared.packets(lane, direction)).collect();
        let works = [Work::Forward(direction), Work::Macswap(direction)];
        let mut pairs = vec![Pairs::default(); works.len() * numbers.len()];
        for round in 0..options.effort.pairs {
            options.tell(&format!("upf on lanes, {}", direction.name()), round);
            for (place, pairs) in pairs.iter_mut().enumerate() {
                let (work, lanes) = (works[place / numbers.len()], numbers[place % numbers.len()]);
                // All lanes at once, and one of them alone, in alternating order.
                let (all, alone) = (&packets[..lanes], &packets[round % lanes]);
                let run = |some: &[Packets]| -> Result<f64> {
                    let some: Vec<&Packets> = some.iter().collect();
                    let costs = shared.round(work, &some, ways, options.effort.slice / 4)?;
                    Ok(costs.iter().sum::<f64>() / costs.len() as f64)
                };
                let alone = || run(std::slice::from_ref(alone));
                let (one, every) = if round % 2 == 0 {
                    let one = alone()?;
                    (one, run(all)?)
                } else {
                    let every = run(all)?;
                    (alone()?, every)
                };
                figure.add(&work.to_string(), &lanes.to_string(), every);
                pairs.ours.push(every);
                pairs.rival.push(one);
            }
        }
        for (place, pairs) in pairs.into_iter().enumerate() {
            let (work, lanes) = (works[place / numbers.len()], numbers[place % numbers.len()]);
            if lanes > 1 {
                let names = [work.to_string(), format!("{lanes} lanes"), "one of them".to_owned()];
                comparisons.push(Comparison::new(names, pairs, Kind::Ratio, None));
            }
        }
    }
    Ok((figure, comparisons))
}
