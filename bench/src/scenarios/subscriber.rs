//! The subscriber experiment: measured on two lanes, simulated for more.

pub mod slices;

use crate::Result;
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::lanes::parallel::cpus;
use crate::scenarios::subscriber::slices::model::{Costs, Spread, locked, owned};
use crate::scenarios::subscriber::slices::{Sharing, Work, slice, steps};
use crate::slices::Pairs;
use crate::statistics::median;

/// Private work in nanoseconds, and numbers of words that a section reads and writes.
const PRIVATE: [f64; 4] = [0.0, 300.0, 1400.0, 6000.0];
const SECTIONS: [usize; 2] = [8, 64];
/// Number of lanes measured at once, and numbers of simulated cores.
const LANES: usize = 2;
const CORES: [usize; 8] = [1, 2, 4, 8, 12, 16, 20, 24];
/// Divisor of the usual slice: the lanes run with real-time priority for the whole slice.
const PART: u32 = 10;
/// Grid of the sensitivity figure: fractions of a packet's time under the lock, and the cost of
/// taking the lock over, in sections.
const SHARES: [f64; 7] = [0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.10];
const HAND_OVERS: [f64; 6] = [0.0, 0.5, 1.0, 1.5, 2.7, 5.0];

/// Nanoseconds per packet of one lane, in each round, at one point of the experiment.
struct Measured {
    way: Sharing,
    private: f64,
    section: usize,
    lanes: usize,
    costs: Vec<f64>,
}

/// Compares state shared under a lock with state that one lane owns.
///
/// # Errors
/// Returns an error if there are fewer than two CPUs or if two lanes wrote an owned subscriber.
pub fn subscriber(report: &mut Report, options: &Options) -> Result<()> {
    if cpus().len() < LANES {
        return Err(format!("{LANES} lanes need {LANES} CPUs").into());
    }
    let measured = measure(options)?;
    for &section in &SECTIONS {
        for &private in &PRIVATE {
            compare(report, &measured, private, section);
        }
    }
    report.figures.push(rates(&measured));
    for &section in &SECTIONS {
        for lock in [Sharing::Mutex, Sharing::Spin] {
            report.figures.push(simulated(&measured, lock, section));
        }
        report.figures.push(checked(&measured, section));
    }
    report.figures.extend([Spread::Exponential, Spread::Fixed].map(sensitivity));
    Ok(())
}

/// Measures every point in every round, in changing order.
fn measure(options: &Options) -> Result<Vec<Measured>> {
    let mut all: Vec<Measured> = Vec::new();
    let mut add = |way, private, section, lanes| {
        all.push(Measured { way, private, section, lanes, costs: Vec::new() });
    };
    for &section in &SECTIONS {
        for &private in &PRIVATE {
            Sharing::ALL.into_iter().for_each(|way| add(way, private, section, LANES));
            add(Sharing::Owned, private, section, 1);
        }
        // Inputs of the simulation.
        [Sharing::Mutex, Sharing::Spin].into_iter().for_each(|way| add(way, 0.0, section, 1));
    }
    // The loop of the lane without a section.
    [LANES, 1].into_iter().for_each(|lanes| add(Sharing::Owned, 0.0, 0, lanes));
    let length = options.effort.slice / PART;
    for round in 0..options.effort.pairs {
        options.tell("subscribers", round);
        // The clock frequency of the processor may have changed.
        let steps = PRIVATE.map(steps);
        let count = all.len();
        for place in 0..count {
            // The variants of one point stay together: a slice of each forms a pair.
            let place = if round % 2 == 0 { place } else { count - 1 - place };
            let one = &mut all[place];
            let private = PRIVATE.iter().position(|private| *private == one.private);
            let work = Work { steps: steps[private.unwrap_or(0)], section: one.section };
            let served = slice(one.way, work, one.lanes, length)?;
            // Linux throttles real-time threads to 95 % of each second.
            std::thread::sleep(length);
            one.costs.push(one.lanes as f64 / served.rate);
        }
    }
    Ok(all)
}

fn find(all: &[Measured], way: Sharing, private: f64, section: usize, lanes: usize) -> &[f64] {
    let is_it = |one: &&Measured| {
        (one.way, one.section, one.lanes) == (way, section, lanes) && one.private == private
    };
    all.iter().find(is_it).map_or(&[], |one| &one.costs)
}

fn point(private: f64, section: usize) -> String {
    format!("{:.1} us private, {} B", private / 1000.0, section * 8)
}

/// Compares the time per packet of a lane. The lanes never sleep, so this is the time of their
/// cores.
fn compare(report: &mut Report, all: &[Measured], private: f64, section: usize) {
    let of = |way| find(all, way, private, section, LANES).to_vec();
    for (ours, rival) in [
        (Sharing::Owned, Sharing::Mutex),
        (Sharing::Owned, Sharing::Spin),
        (Sharing::Owned, Sharing::Sharded),
        (Sharing::Passed, Sharing::Mutex),
        (Sharing::Passed, Sharing::Owned),
    ] {
        let work = format!("{LANES} lanes, {}", point(private, section));
        let names = [work, ours.to_string(), rival.to_string()];
        let pairs = Pairs { ours: of(ours), rival: of(rival) };
        report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, None));
    }
}

fn rates(all: &[Measured]) -> Figure {
    let title = "Subscribers' packets by way and number of lanes, million a second";
    let mut figure = Figure::new("subscriber", title, "Way, lanes", Style::Bars);
    for one in all.iter().filter(|one| one.section > 0) {
        let series = format!("{}, {}", one.way, one.lanes);
        let place = point(one.private, one.section);
        let rate = |cost: &f64| one.lanes as f64 * 1e3 / cost;
        one.costs.iter().map(rate).for_each(|rate| figure.add(&series, &place, rate));
    }
    figure
}

/// Returns the measured costs of a simulation. The time outside the section comes from one lane
/// that owns its subscribers. The uncontended section comes from one lane with the lock. The
/// contended section comes from two lanes that do nothing else.
fn costs(all: &[Measured], lock: Sharing, private: f64, section: usize) -> Costs {
    let of = |way, private, section, lanes| median(find(all, way, private, section, lanes));
    let own = of(Sharing::Owned, 0.0, section, 1) - of(Sharing::Owned, 0.0, 0, 1);
    let outside = of(Sharing::Owned, private, section, 1) - own;
    let free = of(lock, 0.0, section, 1) - of(Sharing::Owned, 0.0, 0, 1);
    // Each lane always waits for the lock or holds it, so a packet takes one section.
    let contended = of(lock, 0.0, section, LANES) / LANES as f64;
    Costs { outside, free, contended: contended.max(free) }
}

fn simulated(all: &[Measured], lock: Sharing, section: usize) -> Figure {
    let name = if lock == Sharing::Mutex { "mutex" } else { "spin" };
    let title = format!(
        "Simulated from measured sections: packets of cores that own their subscribers, as a \
         multiple of those that share them ({lock}, {} B)",
        section * 8
    );
    let name = format!("subscriber-model-{name}-{}", section * 8);
    let mut figure = Figure::new(&name, &title, "Cores", Style::Lines);
    for &private in &PRIVATE[1..] {
        let costs = costs(all, lock, private, section);
        let packet = median(find(all, Sharing::Owned, private, section, 1));
        for (words, spread) in [("varied", Spread::Exponential), ("fixed", Spread::Fixed)] {
            let Costs { outside, free, contended } = costs;
            let share = 100.0 * free / (outside + free);
            let series = format!(
                "{:.1} us, {words}: {free:.0} ns of {:.0} ({share:.1} %), contended {contended:.0}",
                private / 1000.0,
                outside + free
            );
            for cores in CORES {
                let ratio = owned(cores, packet) / locked(cores, costs, spread);
                figure.add(&series, &cores.to_string(), ratio);
            }
        }
    }
    figure
}

/// Draws the simulation of two cores beside the measurement on two lanes.
fn checked(all: &[Measured], section: usize) -> Figure {
    let title = format!(
        "Two lanes, owned as a multiple of shared ({} B): measured, and simulated from one lane",
        section * 8
    );
    let name = format!("subscriber-check-{}", section * 8);
    let mut figure = Figure::new(&name, &title, "Way", Style::Lines);
    for lock in [Sharing::Mutex, Sharing::Spin] {
        for &private in &PRIVATE[1..] {
            let place = format!("{:.1} us private", private / 1000.0);
            let ours = find(all, Sharing::Owned, private, section, LANES);
            let shared = find(all, lock, private, section, LANES);
            for (ours, shared) in ours.iter().zip(shared) {
                figure.add(&format!("{lock}, measured"), &place, shared / ours);
            }
            let packet = median(find(all, Sharing::Owned, private, section, 1));
            let costs = costs(all, lock, private, section);
            for spread in [Spread::Exponential, Spread::Fixed] {
                let ratio = owned(LANES, packet) / locked(LANES, costs, spread);
                figure.add(&format!("{lock}, simulated"), &place, ratio);
            }
        }
    }
    figure
}

/// Draws the result for 24 cores as a function of the time under the lock and of the cost of taking
/// the lock over.
fn sensitivity(spread: Spread) -> Figure {
    let words = if spread == Spread::Exponential { "varied" } else { "fixed" };
    let title = format!(
        "24 cores, owned as a multiple of shared, by the part of a packet's time under the lock \
         (private work {words})"
    );
    let name = format!("subscriber-sensitivity-{words}");
    let mut figure = Figure::new(&name, &title, "Taking over, in sections", Style::Lines);
    for hand_over in HAND_OVERS {
        for share in SHARES {
            let free = 1000.0 * share;
            let costs = Costs { outside: 1000.0 - free, free, contended: free * (1.0 + hand_over) };
            let ratio = owned(24, 1000.0) / locked(24, costs, spread);
            let place = format!("{:.1} %", share * 100.0);
            figure.add(&format!("{hand_over}"), &place, ratio);
        }
    }
    figure
}
