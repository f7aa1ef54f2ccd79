//! Reports in answers: those that a modification asks for, and the last ones.

use super::ground::Lines;
use super::meter::Meter;
use super::settle::settle;
use super::take::take_all;
use crate::session::{Session, Urr, UsageReport, UsageTriggers};
use crate::time::Now;

/// Makes the reports that go into an answer, of these URRs of a session: `asked` says why one
/// reports, with [`UsageTriggers::IMMER`] when it was queried (clause 5.2.2.3.1), with
/// [`UsageTriggers::TERMR`] when it or the session ends. What else is due goes along, and so do the
/// URRs that are linked. The session is to be committed together with the answer.
///
/// For the last reports of rules to be exact, lanes must not count any more: the session is
/// withdrawn, or the rules that are left are published, and all lanes have passed a turn.
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

/// Which PDRs' held packets the control plane has been told of is forgotten for those whose packets
/// are not held any more, so that it is told when they are held again. Called with each change of
/// a session, before it is committed.
pub fn forget_notified(session: &mut Session) {
    let (pdrs, fars) = (&session.pdrs, &session.fars);
    let is_held = |id: &u16| {
        let far = pdrs.iter().find(|pdr| pdr.id == *id).map(|pdr| pdr.far);
        let far = fars.iter().find(|it| Some(it.id) == far);
        far.is_some_and(|far| far.actions.buffer && far.actions.notify)
    };
    session.reporting.notified.retain(is_held);
}
