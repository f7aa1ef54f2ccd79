//! Echoes frames on a veth pair and measures the CPU time per frame of the echoing thread.
//!
//! A batch is queued while the echo does not run, then the echo runs until the whole batch is back.
//! One thread does both in turn, so neither the scheduler nor another CPU affects the result. The
//! CPU time of a batch includes the kernel's transmit work in this thread. Its receive work was
//! done before.

use std::time::{Duration, Instant};

use fastlane_kernel::Interface;
use fastlane_table::counters::PortCounter;

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::echo_lane::{EchoLane, FRAMES, Mechanism, RING};
use crate::device::veth_pair::{BATCH, Veth};
use crate::rivals::ffi::XskEcho;
use crate::slices::{Contender, Effort, Pairs, Slice, pair, thread_cpu};

/// Number of empty turns after which missing frames count as lost.
const PATIENCE: u64 = 20_000;

/// Echo of frames on one interface.
pub trait Echo {
    /// Runs until `frames` frames are echoed or no more arrive. Returns the number of echoed
    /// frames.
    fn run(&mut self, frames: u64) -> u64;
}

impl Echo for XskEcho {
    fn run(&mut self, frames: u64) -> u64 {
        self.run(frames, PATIENCE)
    }
}

impl Echo for EchoLane {
    fn run(&mut self, frames: u64) -> u64 {
        let port = self.counters().port(0, 0);
        let before = port.load(PortCounter::SentPackets);
        let mut idle = 0;
        loop {
            let work = self.lane().turn();
            let echoed = port.load(PortCounter::SentPackets) - before;
            idle = if work == 0 { idle + 1 } else { 0 };
            if idle > 0 && (echoed >= frames || idle > PATIENCE) {
                return echoed;
            }
        }
    }
}

/// Echo with its own veth pair.
struct Station {
    echo: Box<dyn Echo>, // dropped before the pair
    veth: Veth,
}

impl Station {
    fn batch(&mut self) -> Result<Slice> {
        let arrived = self.veth.queue(BATCH)?;
        let (before, start) = (self.veth.returned()?, thread_cpu());
        let echoed = self.echo.run(arrived);
        let cpu = thread_cpu() - start;
        let returned = self.veth.returned()? - before;
        if echoed != arrived || returned != arrived {
            let lost = format!("{arrived} frames came, {echoed} were echoed, {returned} came back");
            return Err(format!("{}: {lost}", self.veth.name).into());
        }
        Ok(Slice { cpu, packets: echoed })
    }
}

impl Contender for Station {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        let end = Instant::now() + length;
        let mut sum = Slice::default();
        while Instant::now() < end {
            let batch = self.batch()?;
            sum.cpu += batch.cpu;
            sum.packets += batch.packets;
        }
        Ok(sum)
    }
}

/// Pair of contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// AF_XDP of Fastlane against the hand-written loop.
    AgainstRings,
    /// AF_XDP of Fastlane against its AF_PACKET.
    AgainstAfPacket,
    /// Hand-written loop against itself on two veth pairs. The ratio shows the error of the method
    /// and must be 1.
    Control,
}

/// Compares two echoes for frames of `length` bytes. The caller runs it
/// [`in_namespace`](crate::device::veth_pair::in_namespace).
///
/// # Errors
/// Returns an error if the kernel refuses a request or a frame is lost.
pub fn compare(
    which: Match,
    length: usize,
    effort: Effort,
    mut progress: impl FnMut(usize),
) -> Result<Pairs> {
    pin(1);
    let mut pairs = Pairs::default();
    for number in 0..effort.pairs {
        progress(number);
        // Fresh interfaces in alternating order, so that no result depends on the order of creation
        // or on page placement.
        let swapped = number % 4 >= 2;
        let (mut ours, mut rival) = if swapped {
            let rival = station(which, false, 1, length)?;
            (station(which, true, 2, length)?, rival)
        } else {
            (station(which, true, 1, length)?, station(which, false, 2, length)?)
        };
        ours.batch()?;
        rival.batch()?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
    }
    Ok(pairs)
}

fn station(which: Match, ours: bool, number: usize, length: usize) -> Result<Station> {
    let veth = Veth::new(number, length, false)?;
    let echo: Box<dyn Echo> = match (which, ours) {
        (Match::AgainstRings | Match::AgainstAfPacket, true) => {
            Box::new(EchoLane::open(Mechanism::AfXdp, &veth.name)?)
        }
        (Match::AgainstAfPacket, false) => {
            Box::new(EchoLane::open(Mechanism::AfPacket, &veth.name)?)
        }
        (Match::AgainstRings, false) | (Match::Control, _) => {
            Box::new(XskEcho::open(Interface::query(&veth.name)?.index, RING, FRAMES)?)
        }
    };
    Ok(Station { echo, veth })
}
