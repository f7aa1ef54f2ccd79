//! Bit rates as meters have them.

use crate::rules::layout::rules::Direction;
use crate::session::Qer;

/// Units of a nanosecond in a meter's word.
const UNITS: u128 = 64;
/// The burst of a meter whose QER says nothing of an averaging window, in ms.
const BURST_MS: u32 = 100;
/// The longest burst, in ms: over ten seconds it is less than 5 % beyond the rate.
const LONGEST_MS: u32 = 400;

/// What an octet costs a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// `octets * cost >> shift` units of 1/64 ns; 0: nothing.
    pub(super) cost: u32,
    pub(super) shift: u8,
    /// In ms.
    pub(super) burst: u16,
}

/// Whether nothing may pass: a maximum of zero.
pub(super) fn is_nothing(qer: &Qer, direction: Direction) -> bool {
    kilobits(qer, direction) == Some(0)
}

fn kilobits(qer: &Qer, direction: Direction) -> Option<u64> {
    let rate = qer.maximum?;
    Some(match direction {
        Direction::Up => rate.uplink,
        Direction::Down => rate.downlink,
    })
}

/// What an octet costs; nothing where there is no maximum.
pub(super) fn cost(qer: &Qer, direction: Direction) -> Cost {
    let Some(kilobits) = kilobits(qer, direction).filter(|it| *it != 0) else {
        return Cost::default();
    };
    // 8 bits at so many bits in a millisecond, in units, with as many bits behind as there is room
    // for: at least 31 that count.
    let octet = (8 * 1_000_000 * UNITS) << 60;
    let exact = octet / u128::from(kilobits);
    let surplus = (128 - exact.leading_zeros()).saturating_sub(32);
    let cost = u32::try_from(exact >> surplus).unwrap_or(u32::MAX);
    let shift = 60_u32.checked_sub(surplus);
    let burst = qer.window_ms.unwrap_or(BURST_MS).clamp(1, LONGEST_MS) as u16;
    // A rate so low that its cost has no bits behind the point: below 1 kbit/s there is none.
    Cost { cost, shift: shift.unwrap_or(0) as u8, burst }
}
