//! Usage reports in responses: queried reports and final reports.

use super::ground::Lines;
use super::meter::Meter;
use super::settle::settle;
use super::take::take_all;
use crate::session::{Session, Urr, UsageReport, UsageTriggers};
use crate::time::Now;

/// Creates the usage reports of a response. `asked` returns the trigger of a URR:
/// [`UsageTriggers::IMMER`] if it was queried (clause 5.2.2.3.1), [`UsageTriggers::TERMR`] if it or
/// the session ends. Other due reports and those of linked URRs are included. The session must be
/// committed together with the response.
///
/// For exact final reports, lanes must not count any more: the session is withdrawn, or the
/// remaining rules are published, and all lanes have passed a turn.
pub fn in_answer<L: Lines + ?Sized>(
    urrs: &mut [Urr],
    version: u64,
    lines: &L,
    now: Now,
    asked: impl Fn(&Urr) -> UsageTriggers,
) -> Vec<UsageReport> {
    let meters: Vec<Meter> = urrs.iter().map(|urr| Meter::read(lines, urr, version)).collect();
    for (urr, meter) in urrs.iter_mut().zip(&meters) {
        settle(urr, meter, now);
    }
    if urrs.iter().all(|urr| asked(urr).is_empty()) {
        return Vec::new();
    }
    take_all(urrs, &meters, now, asked)
}

/// Removes the downlink data notifications of PDRs that no longer buffer packets, so that buffering
/// is reported again. Called before each commit of a changed session.
pub fn forget_notified(session: &mut Session) {
    let (pdrs, fars) = (&session.pdrs, &session.fars);
    let is_held = |id: &u16| {
        let far = pdrs.iter().find(|pdr| pdr.id == *id).map(|pdr| pdr.far);
        let far = fars.iter().find(|it| Some(it.id) == far);
        far.is_some_and(|far| far.actions.buffer && far.actions.notify)
    };
    session.reporting.notified.retain(is_held);
}
