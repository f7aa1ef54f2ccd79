//! Round-trip time of single frames to a lane.

use std::time::{Duration, Instant};

use fastlane_core::Idle;

use crate::Result;
use crate::device::cpu_time::{pin, undisturbed};
use crate::device::echo_lane::Mechanism;
use crate::device::load::Sender;
use crate::device::running_lane::Running;
use crate::device::veth_pair::Veth;
use crate::statistics::quantile;

/// Measured cases: mechanism, idle policy, and true if frames are 1 ms apart. Otherwise each frame
/// follows the previous one.
pub const CASES: [(Mechanism, Idle, bool); 12] = [
    (Mechanism::AfXdp, Idle::Busy, false),
    (Mechanism::AfXdp, Idle::Interrupt, false),
    (Mechanism::AfXdp, Idle::Adaptive, false),
    (Mechanism::AfXdp, Idle::Busy, true),
    (Mechanism::AfXdp, Idle::Interrupt, true),
    (Mechanism::AfXdp, Idle::Adaptive, true),
    (Mechanism::AfPacket, Idle::Busy, false),
    (Mechanism::AfPacket, Idle::Interrupt, false),
    (Mechanism::AfPacket, Idle::Adaptive, false),
    (Mechanism::AfPacket, Idle::Busy, true),
    (Mechanism::AfPacket, Idle::Interrupt, true),
    (Mechanism::AfPacket, Idle::Adaptive, true),
];

/// Time between frames that are sent apart.
const GAP: Duration = Duration::from_millis(1);
/// Time after which a frame that has not come back counts as lost.
const LOST: Duration = Duration::from_millis(200);

/// Round-trip times of the frames of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    /// Median in microseconds.
    pub p50: f64,
    /// 99th percentile in microseconds.
    pub p99: f64,
    /// Number of sent frames.
    pub frames: usize,
    /// Number of frames that did not come back.
    pub lost: usize,
}

/// Sends frames of 60 bytes for `slice`, one at a time. The caller runs it
/// [`in_namespace`](crate::device::veth_pair::in_namespace).
///
/// # Errors
/// Returns an error if the kernel refuses a request or no frame comes back.
pub fn measure(mechanism: Mechanism, idle: Idle, apart: bool, slice: Duration) -> Result<Trip> {
    pin(0);
    let veth = Veth::new(1, 60, true)?;
    let lane = Running::start(mechanism, idle, &veth.name)?;
    let (times, lost) = undisturbed(|| trips(&veth, apart, slice));
    drop(lane);
    if times.is_empty() {
        return Err(format!("{mechanism}: no frame came back").into());
    }
    let frames = times.len() + lost;
    Ok(Trip { p50: quantile(&times, 0.5), p99: quantile(&times, 0.99), frames, lost })
}

/// Returns the round-trip times of the returned frames in microseconds, and the number of lost
/// frames.
fn trips(veth: &Veth, apart: bool, slice: Duration) -> (Vec<f64>, usize) {
    let (mut times, mut lost) = (Vec::new(), 0);
    let start = Instant::now();
    let mut next = start;
    while start.elapsed() < slice {
        if apart {
            next += GAP;
            while Instant::now() < next {
                std::hint::spin_loop();
            }
        }
        match trip(veth) {
            Some(time) => times.push(time.as_secs_f64() * 1e6),
            None => lost += 1,
        }
    }
    (times, lost)
}

fn trip(veth: &Veth) -> Option<Duration> {
    let start = Instant::now();
    veth.send();
    loop {
        if veth.receive() {
            return Some(start.elapsed());
        }
        if start.elapsed() > LOST {
            return None;
        }
    }
}
