//! Lines of state of URRs and QERs.

use super::{PublishError, Published};
use crate::session::{Progress, Qer, Session, Urr};

/// Which of a session's lines are in use.
fn urr_lines(session: &Session) -> impl Iterator<Item = u32> {
    session.urrs.iter().map(|urr| urr.progress.line)
}

fn qer_lines(session: &Session) -> impl Iterator<Item = u32> {
    session.qers.iter().map(|qer| qer.line)
}

/// All lines of a session but its own, each once.
pub(super) fn further(session: &Session) -> Vec<u32> {
    let mut lines: Vec<u32> = urr_lines(session).chain(qer_lines(session)).collect();
    lines.retain(|line| *line != session.id.0);
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Whether a URR was there before, in the line that it says.
fn is_old(before: Option<&Session>, urr: &Urr) -> bool {
    let same = |it: &Urr| it.id == urr.id && it.progress.line == urr.progress.line;
    before.is_some_and(|before| before.urrs.iter().any(same))
}

fn is_old_qer(before: Option<&Session>, qer: &Qer) -> bool {
    let same = |it: &Qer| it.id == qer.id && it.line == qer.line;
    before.is_some_and(|before| before.qers.iter().any(same))
}

impl Published {
    /// Gives URRs and QERs that are new since `before` their lines. To be called before the session
    /// is committed and before anything else is written into the progress of a new URR: that
    /// becomes what it is at the start, with the counters of its line as what was reported and
    /// granted before.
    ///
    /// # Errors
    /// When no line is left; nothing has changed then.
    pub fn assign(
        &mut self,
        before: Option<&Session>,
        session: &mut Session,
    ) -> Result<(), PublishError> {
        let mut taken = Vec::new();
        let done = self.assign_all(before, session, &mut taken);
        if done.is_err() {
            taken.into_iter().for_each(|line| self.lines.untake(line));
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
        // One that is not used now may have been used until now: lanes may still count there.
        let mut own_urr = !before.is_some_and(|it| urr_lines(it).any(|line| line == own));
        let mut own_qer = !before.is_some_and(|it| qer_lines(it).any(|line| line == own));
        let mut lines = Vec::with_capacity(session.urrs.len() + session.qers.len());
        for is_old in &old_urrs {
            lines.push(match *is_old {
                true => None,
                false if std::mem::take(&mut own_urr) => Some(own),
                false => Some(self.take_line(taken)?),
            });
        }
        let mut meters = Vec::with_capacity(session.qers.len());
        for (is_old, qer) in old_qers.iter().zip(&session.qers) {
            meters.push(match *is_old {
                true => None,
                // Only a maximum needs a meter; one that comes later finds the line as it is then.
                false if std::mem::take(&mut own_qer) => Some(own),
                false => Some(self.meter_line(session, &lines, &meters, qer, taken)?),
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

    /// A line for a meter: one of the session's URRs that has none yet, or another.
    fn meter_line(
        &mut self,
        session: &Session,
        lines: &[Option<u32>],
        meters: &[Option<u32>],
        _qer: &Qer,
        taken: &mut Vec<u32>,
    ) -> Result<u32, PublishError> {
        let is_free = |line: &u32| {
            let here = qer_lines(session).any(|it| it == *line);
            !here && !meters.contains(&Some(*line)) && *line != session.id.0
        };
        let shared = lines.iter().flatten().copied().find(is_free);
        shared.map_or_else(|| self.take_line(taken), Ok)
    }

    fn take_line(&mut self, taken: &mut Vec<u32>) -> Result<u32, PublishError> {
        let line = self.lines.take(&self.tables.readers);
        let line = line.ok_or(PublishError::None("line of state"))?;
        taken.push(line);
        Ok(line)
    }

    /// Takes back what [`assign`](Self::assign) gave to a session that then was not published.
    pub fn unassign(&mut self, before: Option<&Session>, session: &Session) {
        let kept = before.map(further).unwrap_or_default();
        for line in further(session) {
            if !kept.contains(&line) {
                self.lines.untake(line);
            }
        }
    }

    /// Gives up the lines of a session that is gone and was [taken down](Self::take_down).
    pub fn release(&mut self, session: &Session) {
        self.give_up_lines(session, None);
    }

    /// Gives up the lines that a session has no longer.
    pub(super) fn give_up_lines(&mut self, before: &Session, now: Option<&Session>) {
        let kept = now.map(further).unwrap_or_default();
        for line in further(before) {
            if self.lines.has(line) && !kept.contains(&line) {
                self.lines.retire(line);
            }
        }
    }
}
