//! Fragmentation of packets that exceed the MTU of their path (RFC 791 clause 3.2). Inner packets
//! are fragmented, so the UE reassembles them and no tunnel endpoint has to.

use fastlane::wire::{Ipv4, checksum, header, header_mut};
use fastlane::{Packet, Turn};

use super::batch::Task;
use super::decide::Charge;
use super::forward::sent;
use super::inner;
use super::judge::Outcome;
use super::later::{Later, Out, emit};
use super::tables::Tables;
use super::ways::Routes;
use super::{Parts, World};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::Direction;
use crate::session::SessionId;

/// Maximum length of a fragment.
const LONGEST: usize = 2048;
/// More-fragments flag and offset mask of IPv4.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

impl<R: Routes> Parts<R> {
    /// Defers the fragmentation of a packet.
    #[cold]
    pub(super) fn cut_up(
        &mut self,
        task: u8,
        (session, charge): (SessionId, Charge),
        out: Out,
        room: u32,
    ) -> Outcome {
        self.later.push(Later::Pieces { task, out, room, session, charge });
        Outcome::Later
    }

    /// Sends a packet in fragments of at most `room` octets.
    pub(super) fn send_pieces(
        &mut self,
        tables: &Tables,
        task: &Task,
        (out, room): (&Out, u32),
        (session, charge): (SessionId, Charge),
        packet: &Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let bytes = task.inner(packet.bytes());
        let Some(inner) = inner::read(bytes) else { return Outcome::Drop(Cause::Malformed) };
        let front = usize::from(inner.transport);
        let data = bytes.get(front..inner.length as usize).unwrap_or_default();
        let each = (room as usize).min(LONGEST).saturating_sub(front) & !7;
        let can = header::<Ipv4>(bytes, 0).filter(|ip| !inner.is_v6 && !ip.has_options());
        let Some(ip) = can.copied().filter(|_| each > 0) else {
            return Outcome::Drop(Cause::TooLong); // options are not copied here
        };
        let pieces = data.chunks(each);
        if pieces.len() > turn.new_packets_left() {
            return Outcome::Drop(Cause::NoFrame);
        }
        let world = World { tables, turn, now: turn.now() };
        if let Err(outcome) = self.charge_later(task, session, charge, packet, world) {
            return outcome;
        }
        let hop = u8::from(!task.is_hairpin);
        let first = ip.flags_fragment_offset.get();
        let mut scratch = [0; LONGEST];
        for (number, piece) in data.chunks(each).enumerate() {
            let is_last = (number + 1) * each >= data.len();
            let offset = (first & OFFSET) + (number * each / 8) as u16;
            let more = if is_last { first & MORE } else { MORE };
            let length = front + piece.len();
            let Some(to) = scratch.get_mut(..length) else { continue };
            let Some(place) = header_mut::<Ipv4>(to, 0) else { continue };
            *place = ip;
            place.total_length.set(length as u16);
            place.flags_fragment_offset.set(more | offset & OFFSET);
            place.time_to_live = ip.time_to_live.saturating_sub(hop);
            place.header_checksum.set(0);
            to[front..].copy_from_slice(piece);
            let sum = checksum::checksum(&to[..front]);
            if let Some(place) = header_mut::<Ipv4>(to, 0) {
                place.header_checksum.set(sum);
            }
            let cause = if emit(turn, to, out) { Cause::Fragmented } else { Cause::NoFrame };
            tables.count(cause, 1, length as u64);
        }
        let direction = if task.tunnel.is_some() { Direction::Up } else { Direction::Down };
        Outcome::Drop(sent(direction))
    }
}
