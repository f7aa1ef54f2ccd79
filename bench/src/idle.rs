//! How much of a core a lane uses, by load and idle policy.

use std::time::{Duration, Instant};

use fastlane_core::Idle;

use crate::Result;
use crate::echo::Mechanism;
use crate::running::Running;
use crate::veth::{Veth, pin, undisturbed};

/// The loads, as parts of the most that the lane echoes.
pub const LOADS: [f64; 5] = [0.0, 0.01, 0.1, 0.5, 1.0];
/// The policies.
pub const POLICIES: [Idle; 3] = [Idle::Busy, Idle::Interrupt, Idle::Adaptive];
/// Frames on their way at most, when as many as possible are sent.
const WINDOW: u64 = 512;
/// How long a lane gets to settle into a load, in which nothing is measured.
const SETTLE: Duration = Duration::from_millis(100);

/// What one policy used at one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time of the lane's thread by time, 1 for a whole core.
    pub core: f64,
    /// Frames echoed in a second.
    pub rate: f64,
}

/// All policies at all loads, once: an entry for each policy, with one for each load. What is the
/// most is measured first, on a lane that never sleeps. To be called
/// [`in_namespace`](crate::veth::in_namespace).
///
/// # Errors
/// When the kernel refuses something.
pub fn round(slice: Duration) -> Result<Vec<Vec<Usage>>> {
    pin(0);
    let veth = Veth::new(1, 60, false)?;
    let most = {
        let lane = Running::start(Mechanism::AfXdp, Idle::Busy, &veth.name)?;
        load(&veth, &lane, None, slice)?.rate
    };
    let mut usages = Vec::new();
    for policy in POLICIES {
        let lane = Running::start(Mechanism::AfXdp, policy, &veth.name)?;
        let at = |&part: &f64| {
            let rate = if part < 1.0 { Some(most * part) } else { None };
            load(&veth, &lane, rate, slice)
        };
        usages.push(LOADS.iter().map(at).collect::<Result<_>>()?);
    }
    Ok(usages)
}

/// Sends at `rate` frames a second, or as fast as they come back, and measures for `slice`.
fn load(veth: &Veth, lane: &Running, rate: Option<f64>, slice: Duration) -> Result<Usage> {
    undisturbed(|| {
        send_for(veth, lane, rate, SETTLE);
        let (cpu, echoed, start) = (lane.cpu()?, lane.echoed(), Instant::now());
        send_for(veth, lane, rate, slice);
        let (cpu, echoed) = (lane.cpu()? - cpu, lane.echoed() - echoed);
        let seconds = start.elapsed().as_secs_f64();
        Ok(Usage { core: cpu as f64 / 1e9 / seconds, rate: echoed as f64 / seconds })
    })
}

fn send_for(veth: &Veth, lane: &Running, rate: Option<f64>, time: Duration) {
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
            veth.send();
            sent += 1;
        } else {
            std::hint::spin_loop();
        }
    }
}
