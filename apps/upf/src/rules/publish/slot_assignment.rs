//! Assignment of counter slots to URRs and QERs.

use super::{PublishError, Published};
use crate::session::{Progress, Qer, Session, Urr};

/// Returns the counter slots of a session's URRs.
fn urr_slots(session: &Session) -> impl Iterator<Item = u32> {
    session.urrs.iter().map(|urr| urr.progress.line)
}

fn qer_slots(session: &Session) -> impl Iterator<Item = u32> {
    session.qers.iter().map(|qer| qer.line)
}

/// Returns all counter slots of a session except its own, each once.
pub(super) fn extra_slots(session: &Session) -> Vec<u32> {
    let mut lines: Vec<u32> = urr_slots(session).chain(qer_slots(session)).collect();
    lines.retain(|line| *line != session.id.0);
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Returns true if a URR existed before, with the same slot.
fn is_old(before: Option<&Session>, urr: &Urr) -> bool {
    let same = |it: &Urr| it.id == urr.id && it.progress.line == urr.progress.line;
    before.is_some_and(|before| before.urrs.iter().any(same))
}

fn is_old_qer(before: Option<&Session>, qer: &Qer) -> bool {
    let same = |it: &Qer| it.id == qer.id && it.line == qer.line;
    before.is_some_and(|before| before.qers.iter().any(same))
}

impl Published {
    /// Assigns counter slots to the URRs and QERs that are new since `before`. It must be called
    /// before the session is committed, and before anything else is written into the progress of a
    /// new URR: that is initialised with the current counters of its slot as reported and granted.
    ///
    /// # Errors
    /// If no slot is free; nothing has changed then.
    pub fn assign(
        &mut self,
        before: Option<&Session>,
        session: &mut Session,
    ) -> Result<(), PublishError> {
        let mut taken = Vec::new();
        let done = self.assign_all(before, session, &mut taken);
        if done.is_err() {
            taken.into_iter().for_each(|line| self.slots.untake(line));
        }
        done
    }

    fn assign_all(
        &mut self,
        before: Option<&Session>,
        session: &mut Session,
        taken: &mut Vec<u32>,
    ) -> Result<(), PublishError> {
        let own = session.id.0;
        let old_urrs: Vec<bool> = session.urrs.iter().map(|urr| is_old(before, urr)).collect();
        let old_qers: Vec<bool> = session.qers.iter().map(|qer| is_old_qer(before, qer)).collect();
        // A slot that is unused now may have been used until now, and lanes may still count there.
        let mut own_urr = !before.is_some_and(|it| urr_slots(it).any(|line| line == own));
        let mut own_qer = !before.is_some_and(|it| qer_slots(it).any(|line| line == own));
        let mut lines = Vec::with_capacity(session.urrs.len() + session.qers.len());
        for is_old in &old_urrs {
            lines.push(match *is_old {
                true => None,
                false if std::mem::take(&mut own_urr) => Some(own),
                false => Some(self.take_slot(taken)?),
            });
        }
        let mut meters = Vec::with_capacity(session.qers.len());
        for is_old in &old_qers {
            meters.push(match *is_old {
                true => None,
                // Only a maximum bit rate needs a meter; one that is added later uses the slot as
                // it is.
                false if std::mem::take(&mut own_qer) => Some(own),
                false => Some(self.meter_slot(session, &lines, &meters, taken)?),
            });
        }
        for (urr, line) in session.urrs.iter_mut().zip(lines) {
            let Some(line) = line else { continue };
            let now = self.counters(line);
            let idle_after = self.last(line);
            urr.progress =
                Progress { line, reported: now, granted: now, idle_after, ..urr.progress };
        }
        for (qer, line) in session.qers.iter_mut().zip(meters) {
            qer.line = line.unwrap_or(qer.line);
        }
        Ok(())
    }

    /// Returns a slot for a meter: a URR's slot of this session without a meter, or a free one.
    fn meter_slot(
        &mut self,
        session: &Session,
        lines: &[Option<u32>],
        meters: &[Option<u32>],
        taken: &mut Vec<u32>,
    ) -> Result<u32, PublishError> {
        let is_free = |line: &u32| {
            let here = qer_slots(session).any(|it| it == *line);
            !here && !meters.contains(&Some(*line)) && *line != session.id.0
        };
        let shared = lines.iter().flatten().copied().find(is_free);
        shared.map_or_else(|| self.take_slot(taken), Ok)
    }

    fn take_slot(&mut self, taken: &mut Vec<u32>) -> Result<u32, PublishError> {
        let line = self.slots.take(&self.tables.readers);
        let line = line.ok_or(PublishError::None("counter slot"))?;
        taken.push(line);
        Ok(line)
    }

    /// Frees what [`assign`](Self::assign) assigned to a session that was not published.
    pub fn unassign(&mut self, before: Option<&Session>, session: &Session) {
        let kept = before.map(extra_slots).unwrap_or_default();
        for line in extra_slots(session) {
            if !kept.contains(&line) {
                self.slots.untake(line);
            }
        }
    }

    /// Frees the slots of a deleted session that was [withdrawn](Self::take_down).
    pub fn release(&mut self, session: &Session) {
        self.free_slots(session, None);
    }

    /// Frees the slots that a session no longer uses.
    pub(super) fn free_slots(&mut self, before: &Session, now: Option<&Session>) {
        let kept = now.map(extra_slots).unwrap_or_default();
        for line in extra_slots(before) {
            if self.slots.has(line) && !kept.contains(&line) {
                self.slots.retire(line);
            }
        }
    }
}
