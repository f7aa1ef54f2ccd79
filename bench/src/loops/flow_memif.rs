//! The cost of flows with NAT for a lane behind native memif, compared with swapping addresses.
//!
//! The lane is on a core of its own and always has frames: the client on CPU 0 writes descriptors
//! of frames that are there already, so it is faster than the lane.

use std::time::{Duration, Instant};

use fastlane_core::App;

use crate::Result;
use crate::device::cpu_time::{pinned, undisturbed};
use crate::device::lane_thread::{SENDER_CPU, Station, wait};
use crate::device::memif_server::{LOG2_PLACES, Listed};
use crate::device::memory_lane::macswap;
use crate::loops::flow_lane::{FlowLane, FlowSet};
use crate::slices::{Contender, Effort, Pairs, Slice, pair};

/// Rest before a slice: Linux throttles real-time threads that take more than 95 % of the time.
const REST: Duration = Duration::from_millis(15);
/// Number of frames that the client sends in turn: enough for all flows.
const FRAMES: usize = 1 << 20;
/// Maximum number of frames in flight: all of them find a place in the ring of the way back.
const WINDOW: u64 = 768;
/// Maximum number of frames that are taken back at once.
const TAKEN: usize = 64;
/// Number of pairs after which both lanes are started anew.
const RESTART: usize = 8;

/// Lane that always has frames while it is measured.
struct BusyLane {
    station: Station,
    /// Number of frames, and the next one.
    frames: usize,
    next: usize,
}

impl BusyLane {
    fn new<A: App + Send + 'static>(app: A, frames: &[Vec<u8>]) -> Result<Self> {
        Ok(Self {
            station: Station::start(app, frames, LOG2_PLACES)?,
            frames: frames.len(),
            next: 0,
        })
    }

    /// Takes frames that have come back. Returns their number.
    fn take(client: &mut Listed) -> u64 {
        let came = (0..TAKEN).take_while(|_| client.take().is_some()).count();
        client.give_back();
        came as u64
    }

    /// Sends frames for `length` and takes all of them back. Returns their number.
    fn fill(
        station: &mut Station,
        next: &mut usize,
        frames: usize,
        length: Duration,
    ) -> Result<u64> {
        station.turns(1)?;
        let client = &mut station.client;
        let (end, mut sent, mut came) = (Instant::now() + length, 0, 0);
        while Instant::now() < end {
            while sent - came < WINDOW && client.write(*next) {
                *next = (*next + 1) % frames;
                sent += 1;
            }
            client.send();
            came += Self::take(client);
        }
        wait("the last frames", || {
            came += Self::take(client);
            Ok(came == sent)
        })?;
        Ok(sent)
    }
}

impl Contender for BusyLane {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        std::thread::sleep(REST);
        let Self { station, frames, next } = self;
        let fill = |station: &mut Station| Self::fill(station, next, *frames, length);
        let (packets, turned) = pinned(SENDER_CPU, || undisturbed(|| station.during(fill)))?;
        Ok(Slice { cpu: turned.cpu, packets })
    }
}

/// Compares the CPU time per packet of flows with NAT with that of macswap.
///
/// # Errors
/// Returns an error if there is not enough memory, memif does not connect or a packet is lost.
pub fn compare_over_memif(flows: &FlowSet, effort: Effort) -> Result<Pairs> {
    let (mut pairs, frames) = (Pairs::default(), flows.frames(FRAMES));
    let lane = FlowLane::new(flows)?;
    let mut contenders = None;
    for number in 0..effort.pairs {
        if number.is_multiple_of(RESTART) {
            contenders = None;
        }
        let (ours, rival) = match &mut contenders {
            Some(both) => both,
            None => {
                let ours = BusyLane::new(lane.router(flows, true)?, &frames)?;
                contenders.insert((ours, BusyLane::new(macswap, &frames)?))
            }
        };
        pair(&mut pairs, effort.slice, ours, rival)?;
        lane.check()?;
    }
    Ok(pairs)
}
