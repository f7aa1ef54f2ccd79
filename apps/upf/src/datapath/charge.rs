//! Charges packets that leave, once their next hop is known and nothing else can stop them.

use fastlane::table::EntryId;

use super::classify::{self, ChargeResult};
use super::deferred_queue::{Deferred, DeferredQueue};
use super::lane_tables::BurstContext;
use super::lookup::{ClassifiedPacket, UePacket};
use super::outcome::Outcome;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::SessionEvent;
use crate::session::SessionIndex;

/// Charges a packet that is about to leave, in the turn in which its rules classified it.
///
/// # Errors
/// Returns the outcome if earlier packets have used up the quota or the rate.
#[inline(always)]
pub(crate) fn charge(
    packet: ClassifiedPacket<'_>,
    queue: &mut DeferredQueue,
    burst: BurstContext<'_>,
) -> Result<(), Outcome> {
    let ClassifiedPacket { session, rules, charge, .. } = packet;
    // The final counters of a deleted session may have been read already.
    if burst.tables.rules(burst.turn, session).is_none() {
        return Err(Outcome::Drop(DropReason::UnknownUser));
    }
    match classify::charge_simple(rules, charge, session, &burst.tables.state, burst.now) {
        true => Ok(()),
        false => charge_slow(packet, queue, burst),
    }
}

#[inline(never)]
fn charge_slow(
    packet: ClassifiedPacket<'_>,
    queue: &mut DeferredQueue,
    burst: BurstContext<'_>,
) -> Result<(), Outcome> {
    let ClassifiedPacket { ue_packet, session, rules, charge, .. } = packet;
    let charged = burst.classifier(session, rules).charge(charge);
    if charged.events != 0 {
        raise(queue, event_of(ue_packet, session, rules.version(), &charged), burst);
    }
    outcome(&charged)
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

/// Raises the session's pending event and defers the message about it. The caller sets the DSCP of
/// a held packet.
#[cold]
pub(crate) fn raise(queue: &mut DeferredQueue, event: SessionEvent, burst: BurstContext<'_>) {
    burst.tables.events.raise(EntryId(event.session));
    queue.push(Deferred::Event(SessionEvent { at: burst.now, ..event }));
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
