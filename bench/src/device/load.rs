//! Frames sent to a lane at a rate, and what it uses of its CPU meanwhile.

use std::time::{Duration, Instant};

use crate::Result;
use crate::device::cpu_time::{pinned, undisturbed};

/// Where frames are sent: away from the lanes.
const CPU: usize = 0;
/// Frames on their way at most, when as many as possible are sent.
const WINDOW: u64 = 512;
/// How long a lane gets to settle into a load, in which nothing is measured.
pub const SETTLE: Duration = Duration::from_millis(100);

/// What sends frames to a lane.
pub trait Sender {
    /// Sends one; false when there was no room for it.
    fn send(&self) -> bool;
}

/// A lane that sends frames back.
pub trait Echoes {
    /// Frames echoed so far.
    fn echoed(&self) -> u64;

    /// CPU time of its thread so far, in nanoseconds.
    ///
    /// # Errors
    /// When the lane has ended.
    fn cpu(&self) -> Result<u64>;
}

/// What a lane used at one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of the lane's thread by time, 1 for a whole core.
    pub core: f64,
    /// Frames echoed in a second.
    pub rate: f64,
}

impl Usage {
    /// Nanoseconds of CPU time per frame.
    #[must_use]
    pub fn cost(self) -> f64 {
        self.core * 1e9 / self.rate
    }
}

/// Sends at `rate` frames a second, or as fast as they come back, and measures for `length`.
///
/// # Errors
/// When the lane has ended.
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
            // One that was lost must not stop the window for ever: it counts as back after a while.
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
