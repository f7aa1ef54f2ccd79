//! Charges packets that leave, once their next hop is known and nothing else can stop them.

use fastlane::Packet;
use fastlane::table::EntryId;

use super::apply::Outcome;
use super::classify::{self, Action, Charge, ChargeResult};
use super::deferred::Deferred;
use super::inner_packet;
use super::lookup::UePacket;
use super::next_hop::Routes;
use super::{BurstContext, Datapath, DeferredQueue};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::session_rules::Rules;
use crate::session::SessionIndex;

/// A charge with the session that it is due for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionCharge {
    pub(crate) session: SessionIndex,
    pub(crate) charge: Charge,
}

impl DeferredQueue {
    /// Charges a packet that is about to leave, in the turn in which these rules classified it.
    ///
    /// # Errors
    /// Returns the outcome if earlier packets have used up the quota or the rate.
    #[inline(always)]
    pub(super) fn charge(
        &mut self,
        ue_packet: &UePacket,
        session: SessionIndex,
        rules: &Rules,
        charge: Charge,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        // The final counters of a deleted session may have been read already.
        if burst.tables.rules(burst.turn, session).is_none() {
            return Err(Outcome::Drop(DropReason::UnknownUser));
        }
        match classify::charge_simple(rules, charge, session, &burst.tables.state, burst.now) {
            true => Ok(()),
            false => self.charge_slow(ue_packet, session, rules, charge, burst),
        }
    }

    #[inline(never)]
    fn charge_slow(
        &mut self,
        ue_packet: &UePacket,
        session: SessionIndex,
        rules: &Rules,
        charge: Charge,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        let BurstContext { tables, turn, now } = burst;
        let blocks = tables.blocks(turn);
        let charged = classify::charge(rules, &blocks, charge, session, &tables.state, now);
        if charged.events != 0 {
            self.raise(ue_packet, 0, session, rules, &charged, burst);
        }
        outcome(&charged)
    }

    /// Raises the session's pending event and defers a message about it. The caller sets the DSCP
    /// of a held packet.
    #[cold]
    pub(super) fn raise(
        &mut self,
        ue_packet: &UePacket,
        dscp: u8,
        session: SessionIndex,
        rules: &Rules,
        raised: &ChargeResult,
        burst: BurstContext<'_>,
    ) {
        burst.tables.events.raise(EntryId(session.0));
        let container = ue_packet.tunnel.and_then(|tunnel| tunnel.pdu_session);
        self.push(Deferred::Event(SessionEvent {
            session: session.0,
            line: raised.line,
            events: raised.events,
            version: u64::from(rules.version()),
            at: burst.now,
            pdr: raised.pdr,
            qfi: container.map_or(0, |it| it.qfi),
            dscp,
            reserved: 0,
        }));
    }
}

impl<R: Routes> Datapath<R> {
    /// Charges a packet that leaves unchanged, after all packets of its batch are labelled.
    ///
    /// # Errors
    /// Returns the outcome if quota or rate are used up.
    pub(super) fn charge_later(
        &mut self,
        ue_packet: &UePacket,
        session: SessionIndex,
        charge: Charge,
        packet: &Packet,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        let rules = burst.tables.rules(burst.turn, session);
        match rules.filter(|rules| rules.version() == charge.version()) {
            Some(rules) => self.deferred.charge(ue_packet, session, rules, charge, burst),
            None => self.charge_by_current_rules(ue_packet, session, packet, burst),
        }
    }

    /// Charges by the current rules, since they changed after the packet was classified. The
    /// current rules decide whether it may leave, the former ones where to.
    #[cold]
    fn charge_by_current_rules(
        &mut self,
        ue_packet: &UePacket,
        session: SessionIndex,
        packet: &Packet,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        let BurstContext { tables, turn, now } = burst;
        let rules = tables.rules(turn, session).ok_or(Outcome::Drop(DropReason::UnknownUser))?;
        let malformed = Outcome::Drop(DropReason::Malformed);
        let inner = inner_packet::read(ue_packet.inner(packet.bytes())).ok_or(malformed)?;
        let qfi = self.flow_of(ue_packet).ok_or(malformed)?;
        let teid = ue_packet.tunnel.map(|tunnel| tunnel.teid);
        let fields = inner.fields(teid, ue_packet.instance, qfi);
        let (blocks, state) = (tables.blocks(turn), &tables.state);
        let decision = classify::decide(rules, &blocks, &fields, session, state, now);
        let charged = match decision.action {
            Action::Hold(hold) => return Err(self.hold(session, rules, hold, burst)),
            Action::Drop(_) => decision.into(),
            Action::Forward(path) if path.redirects(decision.direction, &fields) => {
                return Err(Outcome::Drop(DropReason::Redirected));
            }
            Action::Forward(_) => {
                classify::charge(rules, &blocks, decision.charge, session, state, now)
            }
        };
        if charged.events != 0 {
            self.deferred.raise(ue_packet, inner.tos >> 2, session, rules, &charged, burst);
        }
        outcome(&charged)
    }
}

/// Returns the reason if quotas or meters, as far as is known, stop a packet that will not leave.
pub(super) fn is_stopped(
    session: SessionIndex,
    rules: &Rules,
    charge: Charge,
    burst: BurstContext<'_>,
) -> Option<DropReason> {
    let BurstContext { tables, turn, now } = burst;
    classify::is_stopped(rules, &tables.blocks(turn), charge, session, &tables.state, now)
}

fn outcome(charged: &ChargeResult) -> Result<(), Outcome> {
    match charged.refused {
        None => Ok(()),
        Some(reason) => Err(Outcome::Drop(reason)),
    }
}
