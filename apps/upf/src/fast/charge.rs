//! Charging what leaves: when its way is known and nothing else can keep it here.

use fastlane::Packet;
use fastlane::table::EntryId;

use super::batch::Task;
use super::decide::{self, Charge, Decision, Fate};
use super::inner;
use super::judge::{Case, Outcome};
use super::later::Later;
use super::ways::Routes;
use super::{Parts, World};
use crate::model::SessionId;
use crate::shared::cause::Cause;
use crate::shared::message::SessionEvent;
use crate::shared::rules::Rules;

impl<R: Routes> Parts<R> {
    /// Charges a packet that is about to leave, and is still as it came.
    ///
    /// # Errors
    /// What becomes of it instead: packets before it have used up what it was to use.
    #[inline]
    pub(super) fn charge(
        &mut self,
        task: &Task,
        session: SessionId,
        charge: &Charge,
        packet: &Packet,
        world: World<'_>,
    ) -> Result<(), Outcome> {
        let World { tables, turn, now } = world;
        let rules = tables.rules(turn, session);
        let Some(rules) = rules.filter(|rules| rules.version() == charge.version) else {
            return self.charge_anew(task, session, packet, world);
        };
        let blocks = tables.blocks(turn);
        let decision = decide::charge(rules, &blocks, charge, session, &tables.state, now);
        if decision.events != 0 {
            self.raise(task, 0, session, rules, &decision, world);
        }
        outcome(&decision)
    }

    /// The rules were exchanged since they said that it may leave: those of now say whether, and
    /// those of then where to.
    #[cold]
    fn charge_anew(
        &mut self,
        task: &Task,
        session: SessionId,
        packet: &Packet,
        world: World<'_>,
    ) -> Result<(), Outcome> {
        let World { tables, turn, now } = world;
        let rules = tables.rules(turn, session).ok_or(Outcome::Drop(Cause::UnknownUser))?;
        let malformed = Outcome::Drop(Cause::Malformed);
        let inner = inner::read(task.inner(packet.bytes())).ok_or(malformed)?;
        let qfi = self.flow_of(task).ok_or(malformed)?;
        let teid = task.tunnel.map(|tunnel| tunnel.message.teid);
        let subject = inner.subject(teid, task.instance, qfi);
        let (blocks, state) = (tables.blocks(turn), &tables.state);
        let mut decision = decide::decide(rules, &blocks, &subject, session, state, now);
        if let Fate::Hold(hold) = decision.fate {
            let charge = decision.charge;
            let case = Case { task, number: 0, inner: &inner, session, charge };
            return Err(self.hold(&case, rules, hold, world));
        }
        if matches!(decision.fate, Fate::Forward(_)) {
            let charge = decision.charge;
            decision = decide::charge(rules, &blocks, &charge, session, state, now);
        }
        if decision.events != 0 {
            self.raise(task, inner.tos >> 2, session, rules, &decision, world);
        }
        outcome(&decision)
    }

    /// Raises the session's pending event, and says so by a message later.
    #[cold]
    pub(super) fn raise(
        &mut self,
        task: &Task,
        dscp: u8,
        session: SessionId,
        rules: &Rules,
        decision: &Decision<'_>,
        world: World<'_>,
    ) {
        world.tables.events.raise(EntryId(session.0));
        let message = task.tunnel.and_then(|tunnel| tunnel.message.pdu_session);
        self.later.push(Later::Event(SessionEvent {
            session: session.0,
            line: decision.line,
            events: decision.events,
            version: u64::from(rules.version()),
            at: world.now,
            pdr: decision.pdr,
            qfi: message.map_or(0, |it| it.qfi),
            dscp,
            reserved: 0,
        }));
    }
}

fn outcome(decision: &Decision<'_>) -> Result<(), Outcome> {
    match decision.fate {
        Fate::Forward(_) => Ok(()),
        Fate::Drop(cause) => Err(Outcome::Drop(cause)),
        // Not what may be charged.
        Fate::Hold(_) => Err(Outcome::Drop(Cause::HoldLimit)),
    }
}
