//! How much of a core a lane uses, by load and idle policy.

use std::time::Duration;

use fastlane_core::Idle;

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::load::{Usage, load};
use crate::device::running_lane::Running;
use crate::device::veth_pair::Veth;
use crate::scenarios::veth::echo::Mechanism;

/// The loads, as parts of the most that the lane echoes.
pub const LOADS: [f64; 5] = [0.0, 0.01, 0.1, 0.5, 1.0];
/// The policies.
pub const POLICIES: [Idle; 3] = [Idle::Busy, Idle::Interrupt, Idle::Adaptive];
/// All policies at all loads, once: an entry for each policy, with one for each load. What is the
/// most is measured first, on a lane that never sleeps. To be called
/// [`in_namespace`](crate::device::veth_pair::in_namespace).
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
