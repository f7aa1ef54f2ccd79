//! Loops without a world outside.

use super::Options;
use crate::by_hand::Compiled;
use crate::dpdk::{self, Device, Setting, Who};
use crate::report::{Comparison, Kind, Report};
use crate::{Result, c_app};

/// Goals: see the README.
const MEMORY_BOUND: f64 = 2.0;
const C_BOUND: f64 = 1.03;
const DPDK_BOUND: f64 = 1.5;

/// The whole loop on a memory port against plain C.
///
/// # Errors
/// When there is no memory.
pub fn memory(report: &mut Report, options: &Options) -> Result<()> {
    let bursts = [32, 8, 1];
    let tell = |number| options.tell("memory port", number);
    let results = crate::memory::compare(options.effort, &bursts, 60, tell)?;
    for (burst, pairs) in bursts.into_iter().zip(results) {
        let work = format!("macswap in memory, burst {burst}");
        let names = [work, "whole loop".to_owned(), "plain C".to_owned()];
        let bound = (burst == 32).then_some(MEMORY_BOUND);
        report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
    }
    Ok(())
}

/// The macswap in C against the one in Rust.
///
/// # Errors
/// When the program in C cannot be compiled, or one does not run.
pub fn in_c(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = c_app::Compiled::new()?;
    let tell = |number| options.tell("macswap in C and in Rust", number);
    let pairs = c_app::compare(&compiled, &c_app::memory(), 32, options.effort, tell)?;
    let names = ["macswap in memory, burst 32", "in C", "in Rust"].map(str::to_owned);
    report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, Some(C_BOUND)));
    Ok(())
}

/// DPDK on devices that are nothing but memory.
///
/// # Errors
/// When DPDK is not installed, or a program does not run.
pub fn dpdk(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    for (device, name) in [(Device::Ring, "net_ring"), (Device::Null(64), "net_null")] {
        for (ours, rival, bound) in [
            (Who::Fastlane, Who::Testpmd, Some(DPDK_BOUND)),
            (Who::Fastlane, Who::ByHand, Some(DPDK_BOUND)),
            (Who::ByHand, Who::Testpmd, None),
        ] {
            let setting = Setting { device, burst: 32, length: 60 };
            let what = format!("{name}, {ours} and {rival}");
            let tell = |number| options.tell(&what, number);
            let pairs = dpdk::compare([ours, rival], setting, &compiled, options.effort, tell)?;
            let work = format!("macswap on {name}, burst 32");
            let names = [work, ours.to_string(), rival.to_string()];
            report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
        }
    }
    Ok(())
}
