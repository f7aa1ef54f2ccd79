//! Macswap on virtual DPDK devices that use only memory, so that only the loop costs time: ours,
//! testpmd's, and one written by hand. They are three processes on one CPU that run in turns.

use serde_json::json;

use crate::Result;
use crate::device::application::{Application, ApplicationKind, dpdk_driver};
use crate::rivals::dpdk_loop::{ByHand, Compiled};
use crate::rivals::testpmd::Testpmd;
use crate::slices::{Contender, Effort, Pairs, pair};

/// Number of packets in flight in a looped ring.
const IN_FLIGHT: u32 = 256;
/// Number of pairs of slices after which the programs are restarted, so that no result depends on
/// page placement.
const RESTART: usize = 4;

/// Program that moves the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DpdkContender {
    /// Fastlane application on the DPDK driver.
    Fastlane,
    /// `dpdk-testpmd --forward-mode=macswap`.
    Testpmd,
    /// Hand-written loop, `c/dpdk_macswap.c`.
    ByHand,
}

impl std::fmt::Display for DpdkContender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Fastlane => "Fastlane on DPDK",
            Self::Testpmd => "testpmd",
            Self::ByHand => "loop by hand",
        })
    }
}

/// Virtual DPDK device without an outside peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Ring whose transmit side is its receive side.
    Ring,
    /// Device that always has packets of this length and accepts every packet; their content is
    /// never written.
    Null(u32),
}

impl Device {
    /// Returns the argument of `--vdev`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Ring => "net_ring0".to_owned(),
            Self::Null(length) => format!("net_null0,size={length},copy=0"),
        }
    }

    /// Returns the number of packets to put into the device.
    fn fill(self) -> u32 {
        if self == Self::Ring { IN_FLIGHT } else { 0 }
    }
}

/// Settings common to all programs.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Device of each program.
    pub device: Device,
    /// Maximum number of packets in a burst.
    pub burst: u32,
    /// Length in bytes of the packets that are put into the ring.
    pub length: usize,
}

/// Starts a program and stops it until its first slice.
///
/// # Errors
/// Returns an error if the program does not start or moves no packet.
pub fn start(
    who: DpdkContender,
    setting: Setting,
    compiled: &Compiled,
) -> Result<Box<dyn Contender>> {
    let Setting { device, burst, length } = setting;
    let words = device.words();
    Ok(match who {
        DpdkContender::Testpmd => {
            Box::new(Testpmd::start(&words, burst, device.fill())?.looping()?)
        }
        DpdkContender::ByHand => {
            Box::new(ByHand::start(compiled, &words, burst, device.fill())?.looping()?)
        }
        DpdkContender::Fastlane => {
            let which = match device.fill() {
                0 => ApplicationKind::Macswap,
                packets => ApplicationKind::Filled { packets: packets.into(), length },
            };
            let lanes = json!({ "burst": burst });
            Box::new(Application::start(&which, &dpdk_driver(&words), &lanes)?.looping()?)
        }
    })
}

/// Compares two programs that do the same work.
///
/// # Errors
/// Returns an error if a program does not start, or ends.
pub fn compare(
    [ours, rival]: [DpdkContender; 2],
    setting: Setting,
    compiled: &Compiled,
    effort: Effort,
    mut progress: impl FnMut(usize),
) -> Result<Pairs> {
    let mut pairs = Pairs::default();
    let mut number = 0;
    while number < effort.pairs {
        let swapped = number / RESTART % 2 == 1;
        let (mut a, mut b);
        if swapped {
            b = start(rival, setting, compiled)?;
            a = start(ours, setting, compiled)?;
        } else {
            a = start(ours, setting, compiled)?;
            b = start(rival, setting, compiled)?;
        }
        a.run(effort.slice / 10)?;
        b.run(effort.slice / 10)?;
        for _ in 0..RESTART.min(effort.pairs - number) {
            progress(number);
            pair(&mut pairs, effort.slice, &mut *a, &mut *b)?;
            number += 1;
        }
    }
    Ok(pairs)
}
