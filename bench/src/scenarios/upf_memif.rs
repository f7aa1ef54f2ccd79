//! The cost of the user plane over memif.

pub mod program;

use crate::Result;
use crate::loops::user_plane::Direction;
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::upf_memif::program::{Ports, Setting, compare};

/// Upper bound of the CPU time per packet in nanoseconds: 8 million packets per second of CPU time.
const BOUND: f64 = 125.0;
/// Number of sessions, from which packets are chosen at random, and its name in results.
const SESSIONS: (u32, &str) = (10_000, "10k");

/// Minimum number of pairs for a meaningful result.
const ENOUGH: usize = 31;

/// Measured settings: without steering, and as in the example configuration.
const SETTINGS: [Setting; 3] = [
    Setting { ports: Ports::One, steers: false },
    Setting { ports: Ports::Two, steers: false },
    Setting { ports: Ports::Two, steers: true },
];

/// Measures the programs `upf` and `macswap` over memif, in each direction separately, with inner
/// packets of 64 bytes.
///
/// # Errors
/// Returns an error if a program does not run or loses a frame.
pub fn upf_memif(report: &mut Report, options: &Options) -> Result<()> {
    let title = "Million packets in a second of CPU time over memif, 64 B of the user's";
    let mut rates = Figure::new("upf-memif", title, "Program", Style::Bars);
    let (count, name) = SESSIONS;
    for setting in SETTINGS {
        for direction in [Direction::Uplink, Direction::Downlink] {
            let what = format!("upf over memif, {}, {setting}", direction.name());
            let progress = |number| options.tell(&what, number);
            let pairs = compare(count, direction, setting, options.effort, progress)?;
            let work = format!(
                "{} over memif, {setting}, 64 B, burst 32, {name} sessions",
                direction.name()
            );
            let both = [(format!("upf, {setting}"), &pairs.ours), ("macswap".into(), &pairs.rival)];
            for (who, costs) in both {
                costs.iter().for_each(|ns| rates.add(&who, direction.name(), 1000.0 / ns));
            }
            let at_pace = pairs.at_pace();
            let mut compared = vec![(work.clone(), pairs)];
            if at_pace.rival.len() >= ENOUGH {
                compared.push((format!("{work}, macswap at its pace"), at_pace));
            }
            report.comparisons.extend(compared.into_iter().map(|(work, pairs)| {
                let names = [work, "upf".to_owned(), "macswap".to_owned()];
                Comparison::new(names, pairs, Kind::Cost, Some(BOUND))
            }));
        }
    }
    report.figures.push(rates);
    Ok(())
}
