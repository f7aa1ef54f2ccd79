//! Cost as a function of mechanism, load and frame size: the figures of the paper on Fastlane,
//! measured on this machine.

pub mod mechanisms;

use crate::Result;
use crate::device::load::Usage;
use crate::device::memif_server::{self, MemifContender};
use crate::device::veth_pair::in_namespace;
use crate::report::Report;
use crate::report::figure::{Figure, Style};
use crate::rivals::dpdk_loop::Compiled;
use crate::scenarios::Options;
use crate::scenarios::dpdk::virtual_devices::{self, Device, Setting};
use crate::scenarios::figures::mechanisms::{Mechanism, usages};
use crate::scenarios::veth::echo::{self, Match};
use crate::slices::Pairs;

/// Number of rounds of the figures with many points, enough to show the spread.
const ROUNDS: usize = 3;
const POLICIES: [&str; 3] = ["busy", "interrupt", "adaptive"];
/// Loads as fractions of the maximum rate of returned frames.
const LOADS: [f64; 4] = [0.0, 0.01, 0.1, 0.5];
/// Frame sizes on the wire (RFC 2544, section 9.1); four bytes of each are the check sequence.
const SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// Measures figure 1: mechanisms and idle policies at the maximum rate.
///
/// # Errors
/// Returns an error if nothing can be measured.
pub fn mechanisms(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    let figure = |name, title| Figure::new(name, title, "Mechanism", Style::Bars);
    let mut cost =
        figure("fig-1-cost", "CPU time per packet of 64 B by mechanism and idle policy, ns");
    let mut rate = figure("fig-1-rate", "Packets of 64 B that come back, million a second");
    let rounds = options.rounds.min(ROUNDS);
    for round in 0..rounds {
        for mechanism in Mechanism::ALL {
            eprintln!("{mechanism}: round {} of {rounds}", round + 1);
            for policy in POLICIES {
                match usages(mechanism, policy, &[], options.effort.slice, &compiled) {
                    Ok(usages) => usages.into_iter().for_each(|usage: Usage| {
                        cost.add(&mechanism.to_string(), policy, usage.cost());
                        rate.add(&mechanism.to_string(), policy, usage.rate / 1e6);
                    }),
                    Err(error) => report.leave_out(&format!("{mechanism}, {policy}"), &*error),
                }
            }
        }
    }
    report.figures.extend([cost, rate]);
    Ok(())
}

/// Measures figure 2: CPU by load.
///
/// # Errors
/// Returns an error if nothing can be measured.
pub fn cpu_by_load(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    let title = "CPU of the lane by load, % of a core";
    let mut figure = Figure::new("fig-2-cpu", title, "Load, of the most", Style::Lines);
    let mechanisms = [
        Mechanism::AfXdp,
        Mechanism::AfPacket,
        Mechanism::Tap,
        Mechanism::Memif,
        Mechanism::DpdkMemif,
    ];
    let rounds = options.rounds.min(ROUNDS);
    for round in 0..rounds {
        for mechanism in mechanisms {
            eprintln!("CPU by load, {mechanism}: round {} of {rounds}", round + 1);
            for policy in ["interrupt", "adaptive"] {
                let series = format!("{mechanism}, {policy}");
                match usages(mechanism, policy, &LOADS, options.effort.slice, &compiled) {
                    Ok(usages) => {
                        // The maximum rate was measured first and is drawn last.
                        for (load, usage) in LOADS.iter().zip(&usages[1..]) {
                            let place = format!("{:.0} %", load * 100.0);
                            figure.add(&series, &place, usage.core * 100.0);
                        }
                        figure.add(&series, "100 %", usages[0].core * 100.0);
                    }
                    Err(error) => report.leave_out(&series, &*error),
                }
            }
        }
    }
    report.figures.push(figure);
    Ok(())
}

/// Measures figure 5: cost by frame size, with and without the framework.
///
/// # Errors
/// Returns an error if nothing can be measured.
pub fn sizes(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    let effort = options.point();
    for (name, what, [ours, rival]) in [
        ("memory", "in memory", ["whole loop", "plain C"]),
        ("dpdk", "on net_null of DPDK", ["Fastlane", "loop by hand"]),
        ("memif", "over memif", ["Fastlane, native", "testpmd"]),
        ("af-xdp", "on AF_XDP", ["Fastlane", "rings by hand"]),
    ] {
        let title = format!("CPU time per packet {what} by size of the frame, ns");
        let name = format!("fig-5-{name}");
        let mut figure = Figure::new(&name, &title, "Frame, B", Style::Lines);
        for size in SIZES {
            eprintln!("{size} B {what}");
            let length = size - 4;
            let pairs = match what {
                "in memory" => crate::device::memory_lane::compare(effort, &[32], length, |_| {})
                    .map(|mut all| all.remove(0)),
                "over memif" => memif_server::compare(
                    [MemifContender::Native, MemifContender::Testpmd],
                    length,
                    effort,
                    &compiled,
                    |_| {},
                )
                .map(|(pairs, _)| pairs),
                "on AF_XDP" => {
                    in_namespace(|| echo::compare(Match::AgainstRings, length, effort, |_| {}))
                }
                _ => {
                    let device = Device::Null(size as u32);
                    let setting = Setting { device, burst: 32, length };
                    let who = [
                        virtual_devices::DpdkContender::Fastlane,
                        virtual_devices::DpdkContender::ByHand,
                    ];
                    virtual_devices::compare(who, setting, &compiled, effort, |_| {})
                }
            };
            match pairs {
                Ok(Pairs { ours: ours_ns, rival: rival_ns }) => {
                    let place = size.to_string();
                    ours_ns.into_iter().for_each(|cost| figure.add(ours, &place, cost));
                    rival_ns.into_iter().for_each(|cost| figure.add(rival, &place, cost));
                }
                Err(error) => report.leave_out(&format!("{size} B {what}"), &*error),
            }
        }
        report.figures.push(figure);
    }
    Ok(())
}
