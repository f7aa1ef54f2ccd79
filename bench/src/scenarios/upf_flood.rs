//! Established traffic in the user plane under a flood.

pub mod flood;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Result;
use crate::device::cpu_time::{pinned, undisturbed};
use crate::device::lane_thread::{SENDER_CPU, Turned};
use crate::device::veth_pair::{Veth, in_namespace};
use crate::loops::user_plane::{RouteMirror, Sessions, Shape};
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::scenarios::router::routed_lane::effort;
use crate::scenarios::upf_flood::flood::{
    Account, Flooded, Junk, Load, Passed, answers, compare_junk,
};
use crate::slices::Pairs;
use crate::statistics::median;

/// Number of sessions of established UEs.
const SESSIONS: u32 = 10_000;
/// Rate of established packets as a fraction of the lane's capacity.
const GOOD: f64 = 0.25;
/// Rates of junk as fractions of the capacity, with their names in results.
const LOADS: [(f64, &str); 3] =
    [(0.0, "no flood"), (0.5, "flood at 50 %"), (3.0, "flood at 300 %")];
/// Contenders that are flooded. The last is a macswap that computes for as long per packet as the
/// user plane: what it loses, a lane at this load loses on this machine whatever it does.
const WHO: [&str; 3] = ["upf", "macswap", "delayed macswap"];
/// Number of times that the delay is corrected, and of measurements of which each is the median.
const CORRECTIONS: usize = 3;
const MEASUREMENTS: usize = 5;
/// Number of turns of a round, for each contender at each load.
const PARTS: u32 = 5;
/// Minimum fractions of the capacity measured before a turn, and of CPU time per elapsed time.
/// Below them another virtual machine uses the CPU, and the lane has lost its pace.
const STEADY: f64 = 0.9;
const PRESENT: f64 = 0.98;
/// Time in which a flood uses up the saved response credit, and time in which responses are
/// counted.
const EMPTY: Duration = Duration::from_millis(200);
const COUNT: Duration = Duration::from_millis(500);

/// Measures established traffic under a flood, in the user plane and in macswap over memif; the
/// cost of a junk packet; and the rate of responses.
///
/// # Errors
/// Returns an error if the kernel gives no namespace, if there is not enough memory, or if the
/// accounts of frames do not add up.
pub fn upf_flood(report: &mut Report, options: &Options) -> Result<()> {
    let found = in_namespace(|| {
        let veth = Veth::new(0, 60, false)?;
        let ways = RouteMirror::new(&veth)?;
        let mut sessions = Sessions::new(SESSIONS, Shape::Simple)?;
        sessions.answer(answers());
        let mut found = FloodResults::new(options.log2_ring);
        let delay = Arc::new(AtomicU32::new(0));
        let mut flooded = [
            Flooded::user_plane(&ways, &sessions, options.log2_ring)?,
            Flooded::macswap(&sessions, options.log2_ring)?,
            Flooded::delayed(&sessions, options.log2_ring, Arc::clone(&delay))?,
        ];
        pinned(SENDER_CPU, || {
            calibrate(&mut flooded, &delay, options.effort.slice / PARTS)?;
            for round in 0..options.effort.pairs {
                options.tell("flood", round);
                found.round(&mut flooded, options.effort.slice)?;
            }
            (0..options.rounds).try_for_each(|_| found.answers(&mut flooded[0]))
        })?;
        for flooded in flooded {
            flooded.end()?;
        }
        for junk in Junk::ALL {
            eprintln!("{}", junk.name());
            let pairs = compare_junk(&ways, &mut sessions, junk, effort(options.effort))?;
            let work = "a junk packet in memory, burst 32, 10k sessions".to_owned();
            let names = [work, junk.name().to_owned(), "user's packet".to_owned()];
            found.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, Some(1.0)));
        }
        Ok(found)
    })?;
    found.publish(report);
    Ok(())
}

/// Makes the delayed macswap take as long per packet as the user plane.
fn calibrate(
    [user_plane, _, delayed]: &mut [Flooded; WHO.len()],
    delay: &AtomicU32,
    turn: Duration,
) -> Result<()> {
    let mut times = |steps: u32| -> Result<[f64; 2]> {
        delay.store(steps, Ordering::Relaxed);
        let mut times: [Vec<f64>; 2] = Default::default();
        for _ in 0..MEASUREMENTS {
            for (times, it) in times.iter_mut().zip([&mut *user_plane, &mut *delayed]) {
                times.push(1e9 / undisturbed(|| it.capacity(turn))?.0);
            }
        }
        Ok(times.map(|it| median(&it)))
    };
    /// Steps that show what one costs.
    const MANY: u32 = 64;
    let ([_, none], [_, many]) = (times(0)?, times(MANY)?);
    let step = (many - none) / f64::from(MANY);
    let mut steps = 0.0;
    for _ in 0..CORRECTIONS {
        let [wanted, taken] = times(steps as u32)?;
        steps = (steps + (wanted - taken) / step).max(0.0).round();
    }
    let [wanted, taken] = times(steps as u32)?;
    eprintln!("{steps} steps of {step:.2} ns: {taken:.1} ns a packet, the user plane {wanted:.1}");
    Ok(())
}

/// Results of all rounds.
struct FloodResults {
    /// Number of slots in the rings of the lanes.
    ring: u32,
    comparisons: Vec<Comparison>,
    /// All measured capacities.
    capacities: Vec<f64>,
    rounds: u32,
    rates: Figure,
    bursts: Figure,
    times: Figure,
    loss: Figure,
    pauses: Figure,
    answers: Figure,
    /// CPU time of the lane per frame, under the last of the loads and at capacity.
    saturated: Pairs,
    /// 99th percentile of the one-way time of each round, by load and contender.
    p99: [[Vec<f64>; WHO.len()]; LOADS.len()],
    /// Accounts by load and contender: of all rounds, and of the turns in which the lane kept its
    /// pace.
    accounts: [[Account; WHO.len()]; LOADS.len()],
    steady: [[Account; WHO.len()]; LOADS.len()],
}

/// Results of a contender at one load in one round.
#[derive(Default)]
struct Lot {
    times: Vec<u32>,
    account: Account,
    time: Duration,
    /// Activity of the lane.
    turned: Turned,
}

impl Lot {
    fn add(&mut self, passed: Passed) {
        self.times.extend(passed.times);
        self.account.add(&passed.account);
        self.time += passed.time;
        self.turned.cpu += passed.turned.cpu;
        self.turned.time += passed.turned.time;
        self.turned.turns += passed.turned.turns;
        self.turned.busy += passed.turned.busy;
        self.turned.pauses += passed.turned.pauses;
    }

    /// Returns the CPU time of the lane for each frame that it received, in nanoseconds.
    fn cost(&self) -> f64 {
        self.turned.cpu as f64 / self.account.taken() as f64
    }

    /// Returns the mean number of frames in a turn that received some.
    fn burst(&self) -> f64 {
        self.account.taken() as f64 / self.turned.busy as f64
    }
}

impl FloodResults {
    fn new(log2_ring: u8) -> Self {
        let figure = |name, title, along| Figure::new(name, title, along, Style::Bars);
        Self {
            ring: 1 << log2_ring,
            comparisons: Vec::new(),
            capacities: Vec::new(),
            rounds: 0,
            rates: figure("upf-flood-rates", "Flood over memif, million frames a second", "Frames"),
            bursts: figure("upf-flood-bursts", "Frames in a turn of a flooded lane", "Load"),
            times: figure("upf-flood-times", "One way through a flooded lane, µs", "Load"),
            loss: figure("upf-flood-loss", "Users' packets lost of those due, %", "Load"),
            pauses: figure(
                "upf-flood-pauses",
                "Times that a lane was stopped for 50 µs, a second",
                "Load",
            ),
            answers: figure("upf-flood-answers", "Answers to a flood in a second", "Answers"),
            saturated: Pairs::default(),
            p99: Default::default(),
            accounts: Default::default(),
            steady: Default::default(),
        }
    }

    /// Measures all loads for all contenders in turn. The capacity is measured before and after
    /// each load, because a load is a fraction of the current capacity.
    fn round(&mut self, flooded: &mut [Flooded; WHO.len()], slice: Duration) -> Result<()> {
        let turn = slice / PARTS;
        let (mut rates, mut full) = (Vec::new(), Lot::default());
        let mut measure = |flooded: &mut [Flooded; WHO.len()]| -> Result<f64> {
            let (rate, passed) = undisturbed(|| flooded[0].capacity(turn / 2))?;
            rates.push(rate);
            full.add(passed);
            Ok(rate)
        };
        let mut lots: [[Lot; WHO.len()]; LOADS.len()] = Default::default();
        let mut capacity = measure(flooded)?;
        self.rounds += 1;
        for part in self.rounds..self.rounds + PARTS {
            for (place, (junk, _)) in LOADS.iter().enumerate() {
                let load = Load { good: GOOD * capacity, junk: junk * capacity };
                let mut accounts: [Account; WHO.len()] = Default::default();
                let mut is_present = true;
                for turn_of in 0..WHO.len() {
                    let who = (part as usize + turn_of) % WHO.len();
                    let passed = undisturbed(|| flooded[who].flood(load, turn))?;
                    accounts[who].add(&passed.account);
                    let Turned { cpu, time, .. } = passed.turned;
                    is_present &= cpu as f64 >= PRESENT * time as f64;
                    lots[place][who].add(passed);
                }
                let before = std::mem::replace(&mut capacity, measure(flooded)?);
                if is_present && capacity >= STEADY * before {
                    let sums = self.steady[place].iter_mut();
                    sums.zip(&accounts).for_each(|(sum, it)| sum.add(it));
                }
            }
        }
        self.rates.add("upf", "users' packets at capacity", median(&rates) / 1e6);
        self.bursts.add("upf", "users' packets at capacity", full.burst());
        self.saturated.rival.push(full.cost());
        self.capacities.append(&mut rates);
        for (load, lots) in lots.into_iter().enumerate() {
            for (who, lot) in lots.into_iter().enumerate() {
                self.add(load, who, lot)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, load: usize, who: usize, lot: Lot) -> Result<()> {
        let ((_, name), contender) = (LOADS[load], WHO[who]);
        self.bursts.add(contender, name, lot.burst());
        if (load, who) == (LOADS.len() - 1, 0) {
            self.saturated.ours.push(lot.cost());
        }
        let pauses = lot.turned.pauses as f64 * 1e9 / lot.turned.time as f64;
        self.pauses.add(contender, name, pauses);
        let Lot { mut times, account, time, .. } = lot;
        let rate = |frames: u64| frames as f64 / time.as_secs_f64() / 1e6;
        self.rates.add(contender, &format!("users' packets, {name}"), rate(account.good));
        if account.junk > 0 {
            self.rates.add(contender, &format!("junk, {name}"), rate(account.junk));
            let taken = account.junk - account.junk_refused;
            self.rates.add(contender, &format!("junk taken by the lane, {name}"), rate(taken));
        }
        if times.is_empty() {
            return Err(format!("{contender}, {name}: no packet was received").into());
        }
        let mut at = |part: f64| {
            let place = (part * (times.len() - 1) as f64).round() as usize;
            f64::from(*times.select_nth_unstable(place).1)
        };
        let (p50, p99) = (at(0.5), at(0.99));
        self.times.add(contender, &format!("p50, {name}"), p50 / 1000.0);
        self.times.add(contender, &format!("p99, {name}"), p99 / 1000.0);
        self.p99[load][who].push(p99);
        let part = |lost: u64| 100.0 * lost as f64 / account.good as f64;
        self.loss.add(
            &format!("{contender}, no place in the lane's ring"),
            name,
            part(account.refused),
        );
        self.loss.add(&format!("{contender}, dropped by it"), name, part(account.dropped));
        self.loss.add(
            &format!("{contender}, no place on the way back"),
            name,
            part(account.lost_back),
        );
        self.accounts[load][who].add(&account);
        Ok(())
    }

    /// Counts the responses that the user plane sends per second of flood, after the saved credit
    /// is used up.
    fn answers(&mut self, flooded: &mut Flooded) -> Result<()> {
        let capacity = median(&self.capacities);
        let load = Load { good: GOOD * capacity, junk: LOADS[1].0 * capacity };
        let start = flooded.flood(load, EMPTY)?.until;
        let Passed { account, until, .. } = flooded.flood(load, COUNT)?;
        let seconds = (until - start).as_secs_f64();
        let configured = answers();
        for (name, count, limit) in [
            ("echo responses", account.echoes, configured.echoes_per_s),
            ("error indications", account.errors, configured.errors_per_s),
        ] {
            self.answers.add("configured", name, f64::from(limit));
            self.answers.add("upf", name, count as f64 / seconds);
        }
        Ok(())
    }

    fn publish(self, report: &mut Report) {
        let users = format!("rings of {}, users at 25 % of capacity", self.ring);
        let [alone, half, three] = &self.p99;
        for (pairs, (_, name)) in [alone, half, three].into_iter().zip(LOADS) {
            let [ours, rival, _] = pairs.clone();
            let work = format!("p99 of one way over memif, {users}, {name}");
            let names = [work, WHO[0].to_owned(), WHO[1].to_owned()];
            let pairs = Pairs { ours, rival };
            report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, None));
        }
        let pairs = Pairs { ours: half[0].clone(), rival: alone[0].clone() };
        let work = format!("p99 of one way over memif, {users}, upf");
        let names = [work, LOADS[1].1.to_owned(), LOADS[0].1.to_owned()];
        report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, None));
        let work = "the lane over memif, CPU time per frame, always as many as it takes".to_owned();
        let names = [work, LOADS[2].1.to_owned(), "users' packets".to_owned()];
        let comparison = Comparison::new(names, self.saturated, Kind::Ratio, Some(1.0));
        report.comparisons.push(comparison);
        report.comparisons.extend(self.comparisons);

        let title = format!("Users' packets of all rounds, rings of {}", self.ring);
        let mut sums = Figure::new("upf-flood-packets", &title, "Load", Style::Bars);
        for (accounts, kept) in [(&self.accounts, ""), (&self.steady, " while the lane kept pace")]
        {
            for ((_, name), accounts) in LOADS.iter().zip(accounts) {
                for (who, account) in WHO.iter().zip(accounts) {
                    sums.add(&format!("{who}, due{kept}"), name, account.good as f64);
                    sums.add(&format!("{who}, lost{kept}"), name, account.lost() as f64);
                }
            }
        }
        let Self { rates, bursts, times, loss, pauses, answers, .. } = self;
        report.figures.extend([rates, bursts, times, sums, loss, pauses, answers]);
    }
}
