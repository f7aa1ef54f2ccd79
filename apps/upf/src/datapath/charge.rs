//! Charges packets that leave, once their next hop is known and nothing else can stop them.

use fastlane::Packet;
use fastlane::table::EntryId;

use super::batch::Task;
use super::decide::{self, Charge, Charged, Fate};
use super::inner;
use super::judge::Outcome;
use super::later::Later;
use super::ways::Routes;
use super::{Parts, Put, World};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::rules::Rules;
use crate::session::SessionId;

impl Put {
    /// Charges a packet that is about to leave, in the turn in which these rules classified it.
    ///
    /// # Errors
    /// Returns the outcome if earlier packets have used up the quota or the rate.
    #[inline(always)]
    pub(super) fn charge(
        &mut self,
        task: &Task,
        (session, rules): (SessionId, &Rules),
        charge: Charge,
        world: World<'_>,
    ) -> Result<(), Outcome> {
        // The final counters of a deleted session may have been read already.
        if world.tables.rules(world.turn, session).is_none() {
            return Err(Outcome::Drop(Cause::UnknownUser));
        }
        match decide::charge_at_once(rules, charge, session, &world.tables.state, world.now) {
            true => Ok(()),
            false => self.charge_closely(task, (session, rules), charge, world),
        }
    }

    #[inline(never)]
    fn charge_closely(
        &mut self,
        task: &Task,
        (session, rules): (SessionId, &Rules),
        charge: Charge,
        world: World<'_>,
    ) -> Result<(), Outcome> {
        let World { tables, turn, now } = world;
        let blocks = tables.blocks(turn);
        let charged = decide::charge(rules, &blocks, charge, session, &tables.state, now);
        if charged.events != 0 {
            self.raise(task, 0, session, rules, &charged, world);
        }
        outcome(&charged)
    }

    /// Raises the session's pending event, and says so by a message later.
    #[cold]
    pub(super) fn raise(
        &mut self,
        task: &Task,
        dscp: u8,
        session: SessionId,
        rules: &Rules,
        raised: &Charged,
        world: World<'_>,
    ) {
        world.tables.events.raise(EntryId(session.0));
        let container = task.tunnel.and_then(|tunnel| tunnel.pdu_session);
        self.push(Later::Event(SessionEvent {
            session: session.0,
            line: raised.line,
            events: raised.events,
            version: u64::from(rules.version()),
            at: world.now,
            pdr: raised.pdr,
            qfi: container.map_or(0, |it| it.qfi),
            dscp,
            reserved: 0,
        }));
    }
}

impl<R: Routes> Parts<R> {
    /// Charges a packet that leaves unchanged, after all packets of its batch are labelled.
    ///
    /// # Errors
    /// Returns the outcome if quota or rate are used up.
    pub(super) fn charge_later(
        &mut self,
        task: &Task,
        session: SessionId,
        charge: Charge,
        packet: &Packet,
        world: World<'_>,
    ) -> Result<(), Outcome> {
        let rules = world.tables.rules(world.turn, session);
        match rules.filter(|rules| rules.version() == charge.version()) {
            Some(rules) => self.later.charge(task, (session, rules), charge, world),
            None => self.charge_anew(task, session, packet, world),
        }
    }

    /// Charges by the current rules, since they changed after the packet was classified. The
    /// current rules decide whether it may leave, the former ones where to.
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
        let teid = task.tunnel.map(|tunnel| tunnel.teid);
        let subject = inner.subject(teid, task.instance, qfi);
        let (blocks, state) = (tables.blocks(turn), &tables.state);
        let decision = decide::decide(rules, &blocks, &subject, session, state, now);
        let charged = match decision.fate {
            Fate::Hold(hold) => return Err(self.hold(session, rules, hold, world)),
            Fate::Drop(_) => decision.into(),
            Fate::Forward(path) if path.redirects(decision.direction, &subject) => {
                return Err(Outcome::Drop(Cause::Redirected));
            }
            Fate::Forward(_) => {
                decide::charge(rules, &blocks, decision.charge, session, state, now)
            }
        };
        if charged.events != 0 {
            self.later.raise(task, inner.tos >> 2, session, rules, &charged, world);
        }
        outcome(&charged)
    }
}

/// Returns the reason if quotas or meters, as far as is known, stop a packet that will not leave.
pub(super) fn is_stopped(
    (session, rules): (SessionId, &Rules),
    charge: Charge,
    world: World<'_>,
) -> Option<Cause> {
    let World { tables, turn, now } = world;
    decide::is_stopped(rules, &tables.blocks(turn), charge, session, &tables.state, now)
}

fn outcome(charged: &Charged) -> Result<(), Outcome> {
    match charged.refused {
        None => Ok(()),
        Some(cause) => Err(Outcome::Drop(cause)),
    }
}
