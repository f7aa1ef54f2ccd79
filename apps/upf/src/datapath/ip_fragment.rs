//! Fragmentation of packets that exceed the MTU of their path (RFC 791 clause 3.2). Inner packets
//! are fragmented, so the UE reassembles them and no tunnel endpoint has to.

use fastlane::wire::{Ipv4, checksum, header, header_mut};
use fastlane::{Packet, Turn};

use super::apply::Outcome;
use super::charge::SessionCharge;
use super::deferred::{Deferred, Egress, emit};
use super::forward::sent;
use super::inner_packet;
use super::lane_tables::LaneTables;
use super::lookup::UePacket;
use super::next_hop::Routes;
use super::{BurstContext, Datapath};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;

/// Maximum length of a fragment.
const MAX_LENGTH: usize = 2048;
/// More-fragments flag and offset mask of IPv4.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Egress of a packet that is sent in fragments of at most `room` octets.
pub(crate) struct Fragmentation<'a> {
    pub(crate) out: &'a Egress,
    pub(crate) room: u32,
    /// Charge that is due for the whole packet.
    pub(crate) due: SessionCharge,
}

impl<R: Routes> Datapath<R> {
    /// Defers the fragmentation of a packet.
    #[cold]
    pub(super) fn defer_fragmentation(
        &mut self,
        ue_packet: u8,
        due: SessionCharge,
        out: Egress,
        room: u32,
    ) -> Outcome {
        let SessionCharge { session, charge } = due;
        self.deferred.push(Deferred::Fragments { ue_packet, out, room, session, charge });
        Outcome::Deferred
    }

    /// Sends a packet in fragments of at most `room` octets.
    pub(super) fn send_fragments(
        &mut self,
        tables: &LaneTables,
        ue_packet: &UePacket,
        fragmentation: &Fragmentation<'_>,
        packet: &Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let Fragmentation { out, room, due: SessionCharge { session, charge } } = *fragmentation;
        let bytes = ue_packet.inner(packet.bytes());
        let Some(inner) = inner_packet::read(bytes) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let front = usize::from(inner.transport);
        let data = bytes.get(front..inner.length as usize).unwrap_or_default();
        let each = (room as usize).min(MAX_LENGTH).saturating_sub(front) & !7;
        let can = header::<Ipv4>(bytes, 0).filter(|ip| !inner.is_v6 && !ip.has_options());
        let Some(ip) = can.copied().filter(|_| each > 0) else {
            return Outcome::Drop(DropReason::TooLong); // options are not copied here
        };
        let fragments = data.chunks(each);
        if fragments.len() > turn.new_packets_left() {
            return Outcome::Drop(DropReason::NoFrame);
        }
        let burst = BurstContext { tables, turn, now: turn.now() };
        if let Err(outcome) = self.charge_later(ue_packet, session, charge, packet, burst) {
            return outcome;
        }
        let hop = u8::from(!ue_packet.is_hairpin);
        let first = ip.flags_fragment_offset.get();
        let mut scratch = [0; MAX_LENGTH];
        for (number, fragment) in data.chunks(each).enumerate() {
            let is_last = (number + 1) * each >= data.len();
            let offset = (first & OFFSET) + (number * each / 8) as u16;
            let more = if is_last { first & MORE } else { MORE };
            let length = front + fragment.len();
            let Some(to) = scratch.get_mut(..length) else { continue };
            let Some(place) = header_mut::<Ipv4>(to, 0) else { continue };
            *place = ip;
            place.total_length.set(length as u16);
            place.flags_fragment_offset.set(more | offset & OFFSET);
            place.time_to_live = ip.time_to_live.saturating_sub(hop);
            place.header_checksum.set(0);
            to[front..].copy_from_slice(fragment);
            let sum = checksum::checksum(&to[..front]);
            if let Some(place) = header_mut::<Ipv4>(to, 0) {
                place.header_checksum.set(sum);
            }
            let reason =
                if emit(turn, to, out) { DropReason::Fragmented } else { DropReason::NoFrame };
            tables.count(reason, 1, length as u64);
        }
        let direction =
            if ue_packet.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink };
        Outcome::Drop(sent(direction))
    }
}
