//! Gb/s of one core by the length of a user's packets: figure 7 of the paper on Fastlane.

pub mod path;

use crate::Result;
use crate::device::veth_pair::in_namespace;
use crate::loops::user_plane::Direction;
use crate::report::Report;
use crate::report::figure::{Figure, Style};
use crate::scenarios::Options;
use path::{Kind, Path};

/// Lengths of users' IP packets in octets.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1400];

/// Measures the UPF on AF_XDP, the same UPF on a UDP socket and a TAP, and macswap on AF_XDP.
///
/// # Errors
/// Returns an error if the kernel refuses something, or packets are lost.
pub fn upf_sizes(report: &mut Report, options: &Options) -> Result<()> {
    for direction in [Direction::Uplink, Direction::Downlink] {
        let name = direction.name();
        let title = |what: &str| format!("{what} by length of the user's packet, {name}");
        let along = "User's packet, octets";
        let mut rate =
            Figure::new(&format!("fig-7-{name}"), &title("Gb/s of one core"), along, Style::Lines);
        let mut cost = Figure::new(
            &format!("fig-7-{name}-cost"),
            &title("CPU time per packet, ns"),
            along,
            Style::Lines,
        );
        for round in 0..options.rounds {
            for kind in Kind::ALL {
                eprintln!("{kind}, {name}: round {} of {}", round + 1, options.rounds);
                let costs = in_namespace(|| {
                    let mut path = Path::new(kind, direction)?;
                    SIZES.map(|size| path.cost(size, options.effort.slice)).into_iter().collect()
                });
                let costs: Vec<f64> = costs?;
                for (size, nanoseconds) in SIZES.into_iter().zip(costs) {
                    let (series, place) = (kind.to_string(), size.to_string());
                    rate.add(&series, &place, (size * 8) as f64 / nanoseconds);
                    cost.add(&series, &place, nanoseconds);
                }
            }
        }
        report.figures.extend([rate, cost]);
    }
    Ok(())
}
