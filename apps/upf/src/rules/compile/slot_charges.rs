//! Charges of a rule by counter slot, which lanes go through once per packet.

use super::rule_entry::{RuleEntry, meter_cost};
use crate::rules::layout::session_rules::{
    CHARGES, Direction, Limit, NEVER, SlotCharge, limit, slot_charge,
};
use crate::session::Urr;

/// Returns the charges of a rule that only meters can stop; `None` if there are too many.
/// `limits` returns the thresholds of a URR.
pub(super) fn slot_charges(
    entry: &RuleEntry<'_>,
    limits: fn(&Urr) -> Vec<Limit>,
) -> Option<Vec<SlotCharge>> {
    let mut charges: Vec<SlotCharge> = Vec::with_capacity(entry.meters.len());
    for qer in &entry.meters {
        let cost = meter_cost(qer, entry.direction);
        let charge = slot(&mut charges, qer.line);
        (charge.cost, charge.shift, charge.burst) = (cost.cost, cost.shift, cost.burst);
        charge.flags |= slot_charge::METER;
    }
    for count in &entry.counts {
        let urr = count.urr;
        let charge = slot(&mut charges, urr.progress.line);
        charge.flags |= slot_charge::COUNT;
        charge.flags |= if urr.watch().start { slot_charge::START } else { 0 };
        let (check_above, flags) = limited(&limits(urr), entry.direction);
        charge.check_above = check_above;
        charge.flags |= flags;
    }
    (charges.len() <= CHARGES).then_some(charges)
}

/// Returns the charge of a slot, which is added if it is missing.
fn slot(charges: &mut Vec<SlotCharge>, line: u32) -> &mut SlotCharge {
    let index = charges.iter().position(|it| it.line == line).unwrap_or_else(|| {
        charges.push(SlotCharge {
            check_above: NEVER,
            line,
            cost: 0,
            burst: 0,
            shift: 0,
            flags: 0,
            reserved: 0,
        });
        charges.len() - 1
    });
    &mut charges[index]
}

/// Returns the highest value of the limited octets at which no threshold is reached, and the flags
/// that select these octets. Several thresholds are checked by the least of them, against the
/// octets of all: the check may then be due earlier, but never late.
fn limited(limits: &[Limit], direction: Direction) -> (u64, u8) {
    let Some(first) = limits.iter().map(|it| it.at).min() else { return (NEVER, 0) };
    let flags_of = |limit: &Limit| match (limit.what & limit::BASIS, direction) {
        (limit::UPLINK, Direction::Uplink) | (limit::DOWNLINK, Direction::Downlink) => {
            slot_charge::OWN
        }
        (limit::UPLINK | limit::DOWNLINK, _) => slot_charge::OTHER,
        _ => slot_charge::OWN | slot_charge::OTHER,
    };
    let flags = limits.iter().fold(0, |flags, limit| flags | flags_of(limit));
    // NEVER is reserved for "no limit".
    (first.saturating_sub(1).min(NEVER - 1), flags)
}
