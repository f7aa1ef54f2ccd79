//! Fragmentation of packets that exceed the MTU of their path (RFC 791 clause 3.2). Inner packets
//! are fragmented, so the UE reassembles them and no tunnel endpoint has to.

use fastlane::Packet;
use fastlane::wire::{Ipv4, checksum, header, header_mut};

use super::forward::Forwarder;
use super::inner_packet;
use super::lane_tables::TurnContext;
use super::lookup::{SessionCharge, UePacket};
use super::next_hop::Egress;
use super::outcome::{Outcome, forwarded};
use super::routes::Routes;
use crate::rules::layout::drop_reason::DropReason;

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

impl Fragmentation<'_> {
    /// Sends a packet in fragments.
    pub(crate) fn send<R: Routes>(
        &self,
        forwarder: &mut Forwarder<R>,
        ue_packet: &UePacket,
        packet: &Packet,
        context: &mut TurnContext<'_>,
    ) -> Outcome {
        let bytes = ue_packet.inner(packet.bytes());
        let Some(inner) = inner_packet::read(bytes) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let front = usize::from(inner.transport);
        let data = bytes.get(front..inner.length as usize).unwrap_or_default();
        let each = (self.room as usize).min(MAX_LENGTH).saturating_sub(front) & !7;
        let can = header::<Ipv4>(bytes, 0).filter(|ip| !inner.is_v6 && !ip.has_options());
        let Some(ip) = can.copied().filter(|_| each > 0) else {
            return Outcome::Drop(DropReason::TooLong); // options are not copied here
        };
        if data.chunks(each).len() > context.turn.new_packets_left() {
            return Outcome::Drop(DropReason::NoFrame);
        }
        if let Err(outcome) = forwarder.charge_later(ue_packet, self.due, packet, context.burst()) {
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
            let Some(header) = header_mut::<Ipv4>(to, 0) else { continue };
            *header = ip;
            header.total_length.set(length as u16);
            header.flags_fragment_offset.set(more | offset & OFFSET);
            header.time_to_live = ip.time_to_live.saturating_sub(hop);
            header.header_checksum.set(0);
            to[front..].copy_from_slice(fragment);
            let sum = checksum::checksum(&to[..front]);
            if let Some(header) = header_mut::<Ipv4>(to, 0) {
                header.header_checksum.set(sum);
            }
            let reason = match self.out.send(context.turn, to) {
                true => DropReason::Fragmented,
                false => DropReason::NoFrame,
            };
            context.tables.count(reason, 1, length as u64);
        }
        Outcome::Drop(forwarded(ue_packet.usual_direction()))
    }
}
