//! DPDK on virtual devices that use only memory.

pub mod virtual_devices;

use crate::Result;
use crate::report::{Comparison, Kind, Report};
use crate::rivals::dpdk_loop::Compiled;
use crate::scenarios::Options;
use virtual_devices::{Device, DpdkContender, Setting};

/// Upper bound of the difference to the loop written by hand, in nanoseconds.
const BOUND: f64 = 0.8;

/// Compares Fastlane on virtual DPDK devices with testpmd and with the loop written by hand.
///
/// # Errors
/// Returns an error if DPDK is not installed or a program does not run.
pub fn dpdk(report: &mut Report, options: &Options) -> Result<()> {
    let compiled = Compiled::new()?;
    for (device, name) in [(Device::Ring, "net_ring"), (Device::Null(64), "net_null")] {
        for (ours, rival, bound) in [
            (DpdkContender::Fastlane, DpdkContender::Testpmd, None),
            (DpdkContender::Fastlane, DpdkContender::ByHand, Some(BOUND)),
            (DpdkContender::ByHand, DpdkContender::Testpmd, None),
        ] {
            let setting = Setting { device, burst: 32, length: 60 };
            let what = format!("{name}, {ours} and {rival}");
            let tell = |number| options.tell(&what, number);
            let pairs =
                virtual_devices::compare([ours, rival], setting, &compiled, options.effort, tell)?;
            let work = format!("macswap on {name}, burst 32");
            let names = [work, ours.to_string(), rival.to_string()];
            report.comparisons.push(Comparison::new(names, pairs, Kind::Difference, bound));
        }
    }
    Ok(())
}
