//! CPU use of a lane by load and idle policy.

use std::time::Duration;

use fastlane_core::Idle;

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::echo_lane::Mechanism;
use crate::device::load::{Usage, load};
use crate::device::running_lane::Running;
use crate::device::veth_pair::Veth;

/// Loads as fractions of the maximum rate that the lane echoes.
pub const LOADS: [f64; 5] = [0.0, 0.01, 0.1, 0.5, 1.0];
/// Measured idle policies.
pub const POLICIES: [Idle; 3] = [Idle::Busy, Idle::Interrupt, Idle::Adaptive];
/// Measures all policies at all loads once. Returns an entry for each policy with the usage at each
/// load. The maximum rate is measured first, on a lane that never sleeps. The caller runs it
/// [`in_namespace`](crate::device::veth_pair::in_namespace).
///
/// # Errors
/// Returns an error if the kernel refuses a request.
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
