//! Conversion of bit rates to meter parameters.

use crate::rules::layout::session_rules::Direction;
use crate::session::Qer;

/// Units per nanosecond in a meter's word.
const UNITS: u128 = 64;
/// Burst in ms of a meter whose QER has no averaging window.
const BURST_MS: u32 = 100;
/// Maximum burst in ms: over ten seconds it exceeds the rate by less than 5 %.
const LONGEST_MS: u32 = 400;

/// Meter parameters of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MeterCost {
    /// Cost: `octets * cost >> shift` units of 1/64 ns; 0: unlimited.
    pub(super) cost: u32,
    pub(super) shift: u8,
    /// Burst in ms.
    pub(super) burst: u16,
}

/// Returns true if nothing may pass: the maximum is zero.
pub(super) fn is_nothing(qer: &Qer, direction: Direction) -> bool {
    kilobits(qer, direction) == Some(0)
}

fn kilobits(qer: &Qer, direction: Direction) -> Option<u64> {
    let rate = qer.maximum?;
    Some(match direction {
        Direction::Uplink => rate.uplink,
        Direction::Downlink => rate.downlink,
    })
}

/// Returns the meter parameters of a direction; zeros without a maximum.
pub(super) fn cost(qer: &Qer, direction: Direction) -> MeterCost {
    let Some(kilobits) = kilobits(qer, direction).filter(|it| *it != 0) else {
        return MeterCost::default();
    };
    // The time of 8 bits in meter units as a fixed point number with as many fractional bits as
    // fit: at least 31 significant bits.
    let octet = (8 * 1_000_000 * UNITS) << 60;
    let exact = octet / u128::from(kilobits);
    let surplus = (128 - exact.leading_zeros()).saturating_sub(32);
    let cost = u32::try_from(exact >> surplus).unwrap_or(u32::MAX);
    let shift = 60_u32.checked_sub(surplus);
    let burst = qer.window_ms.unwrap_or(BURST_MS).clamp(1, LONGEST_MS) as u16;
    // Only rates below 1 kbit/s would have no fractional bits, and there are none.
    MeterCost { cost, shift: shift.unwrap_or(0) as u8, burst }
}
