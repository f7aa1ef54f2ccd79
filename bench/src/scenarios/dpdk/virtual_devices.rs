//! Macswap on devices of DPDK that are nothing but memory, where only the loop costs: ours, that of
//! testpmd, and one by hand, as three processes on one CPU that take turns.

use serde_json::{Value, json};

use crate::Result;
use crate::device::application::{Application, Which};
use crate::rivals::dpdk_loop::{ByHand, Compiled};
use crate::rivals::testpmd::Testpmd;
use crate::slices::{Contender, Effort, Pairs, pair};

/// Packets on their way in a ring that ends where it begins.
const IN_FLIGHT: u32 = 256;
/// Pairs of slices after which the programs start anew, so that no result hangs on where their
/// memory happened to lie.
const RESTART: usize = 4;

/// Who moves the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// An application of ours, on the DPDK plugin.
    Fastlane,
    /// `dpdk-testpmd --forward-mode=macswap`.
    Testpmd,
    /// `c/dpdk_macswap.c`.
    ByHand,
}

impl std::fmt::Display for Who {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Fastlane => "Fastlane on DPDK",
            Self::Testpmd => "testpmd",
            Self::ByHand => "loop by hand",
        })
    }
}

/// A device of DPDK without a world outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A ring that ends where it begins.
    Ring,
    /// One that always has packets of so many bytes, and takes all; they are not written to.
    Null(u32),
}

impl Device {
    /// As an argument `--vdev`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Ring => "net_ring0".to_owned(),
            Self::Null(length) => format!("net_null0,size={length},copy=0"),
        }
    }

    /// Packets to put into it.
    fn fill(self) -> u32 {
        if self == Self::Ring { IN_FLIGHT } else { 0 }
    }
}

/// The driver of a port on a device of DPDK, as a configuration has it.
#[must_use]
pub fn driver(device: &str) -> Value {
    json!({ "dpdk": { "vdev": device } })
}

/// What the programs have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The device of each.
    pub device: Device,
    /// Packets in a burst.
    pub burst: u32,
    /// Bytes in a packet that is put into the ring.
    pub length: usize,
}

/// Starts a program, stopped until its first slice.
///
/// # Errors
/// When it does not start, or moves no packet.
pub fn start(who: Who, setting: Setting, compiled: &Compiled) -> Result<Box<dyn Contender>> {
    let Setting { device, burst, length } = setting;
    let words = device.words();
    Ok(match who {
        Who::Testpmd => Box::new(Testpmd::start(&words, burst, device.fill())?.looping()?),
        Who::ByHand => Box::new(ByHand::start(compiled, &words, burst, device.fill())?.looping()?),
        Who::Fastlane => {
            let which = match device.fill() {
                0 => Which::Macswap,
                packets => Which::Filled { packets: packets.into(), length },
            };
            let lanes = json!({ "burst": burst });
            Box::new(Application::start(&which, &driver(&words), &lanes)?.looping()?)
        }
    })
}

/// Compares two ways of doing the same.
///
/// # Errors
/// When a program does not start, or ends.
pub fn compare(
    [ours, rival]: [Who; 2],
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
