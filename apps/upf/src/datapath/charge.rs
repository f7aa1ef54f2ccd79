//! Charges packets that leave, once their next hop is known and nothing else can stop them.

use fastlane::table::EntryId;

use super::classify::{self, Charge, ChargeResult};
use super::deferred_queue::{DeferredQueue, DeferredWork};
use super::lane_tables::BurstContext;
use super::lookup::UePacket;
use super::outcome::Outcome;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::session_rules::Rules;
use crate::session::SessionIndex;

impl DeferredQueue {
    /// Charges a packet that is about to leave, in the turn in which these rules classified it.
    /// Events that it raises are deferred.
    ///
    /// # Errors
    /// Returns the outcome if earlier packets have used up the quota or the rate.
    #[inline(always)]
    pub(crate) fn charge(
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
        let charged = burst.classifier(session, rules).charge(charge);
        if charged.events != 0 {
            self.raise(event_of(ue_packet, session, rules.version(), &charged), burst);
        }
        outcome(&charged)
    }

    /// Raises the session's pending event and defers the message about it. The caller sets the DSCP
    /// of a held packet.
    #[cold]
    pub(crate) fn raise(&mut self, event: SessionEvent, burst: BurstContext<'_>) {
        burst.tables.events.raise(EntryId(event.session));
        self.push(DeferredWork::Event(SessionEvent { at: burst.now, ..event }));
    }
}

/// Builds the message about events that a packet raised, without DSCP and time.
pub(crate) fn event_of(
    ue_packet: &UePacket,
    session: SessionIndex,
    version: u32,
    raised: &ChargeResult,
) -> SessionEvent {
    let container = ue_packet.tunnel.and_then(|tunnel| tunnel.pdu_session);
    SessionEvent {
        session: session.0,
        line: raised.slot,
        events: raised.events,
        version: u64::from(version),
        at: 0,
        pdr: raised.pdr,
        qfi: container.map_or(0, |it| it.qfi),
        dscp: 0,
        reserved: 0,
    }
}

/// Returns the outcome of a packet that must not leave.
///
/// # Errors
/// Returns the drop of a packet that was refused.
pub(crate) fn outcome(charged: &ChargeResult) -> Result<(), Outcome> {
    match charged.refused {
        None => Ok(()),
        Some(reason) => Err(Outcome::Drop(reason)),
    }
}
