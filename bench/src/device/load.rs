//! Sends frames to a lane at a given rate and measures the CPU time that the lane uses.

use std::time::{Duration, Instant};

use crate::Result;
use crate::device::cpu_time::{pinned, undisturbed};

/// CPU of the sender; lanes run on other CPUs.
const CPU: usize = 0;
/// Maximum number of frames in flight when the sender runs as fast as frames come back.
const WINDOW: u64 = 512;
/// Time that a lane gets to settle into a load before the measurement starts.
pub const SETTLE: Duration = Duration::from_millis(100);

/// Source of frames for a lane.
pub trait Sender {
    /// Sends one frame. Returns false if there was no room for it.
    fn send(&self) -> bool;
}

/// Lane that sends frames back.
pub trait Echoes {
    /// Returns the number of frames echoed so far.
    fn echoed(&self) -> u64;

    /// Returns the CPU time of the lane's thread so far, in nanoseconds.
    ///
    /// # Errors
    /// Returns an error if the lane has ended.
    fn cpu(&self) -> Result<u64>;
}

/// CPU use and rate of a lane at one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of the lane's thread divided by elapsed time; 1 is a whole core.
    pub core: f64,
    /// Frames echoed per second.
    pub rate: f64,
}

impl Usage {
    /// Returns the CPU time per frame in nanoseconds.
    #[must_use]
    pub fn cost(self) -> f64 {
        self.core * 1e9 / self.rate
    }
}

/// Sends at `rate` frames per second, or as fast as frames come back, and measures for `length`.
///
/// # Errors
/// Returns an error if the lane has ended.
pub fn load(
    sender: &dyn Sender,
    lane: &dyn Echoes,
    rate: Option<f64>,
    length: Duration,
) -> Result<Usage> {
    let measure = || {
        send_for(sender, lane, rate, SETTLE);
        let (cpu, echoed, start) = (lane.cpu()?, lane.echoed(), Instant::now());
        send_for(sender, lane, rate, length);
        let (cpu, echoed) = (lane.cpu()? - cpu, lane.echoed() - echoed);
        let seconds = start.elapsed().as_secs_f64();
        Ok(Usage { core: cpu as f64 / 1e9 / seconds, rate: echoed as f64 / seconds })
    };
    pinned(CPU, || undisturbed(measure))
}

fn send_for(sender: &dyn Sender, lane: &dyn Echoes, rate: Option<f64>, time: Duration) {
    let start = Instant::now();
    let mut sent = 0_u64;
    let before = lane.echoed();
    if rate == Some(0.0) {
        return std::thread::sleep(time);
    }
    while start.elapsed() < time {
        let due = match rate {
            Some(rate) => (start.elapsed().as_secs_f64() * rate) as u64,
            // A lost frame must not close the window for ever: it counts as returned after a while.
            None => (lane.echoed() - before).max(sent.saturating_sub(4 * WINDOW)) + WINDOW,
        };
        if sent < due {
            sender.send();
            sent += 1;
        } else {
            std::hint::spin_loop();
        }
    }
}
