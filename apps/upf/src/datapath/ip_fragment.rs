//! IP fragments: those made of packets that exceed the MTU of their path (RFC 791 clause 3.2), and
//! those that arrive. Inner packets are fragmented, so the UE reassembles them and no tunnel
//! endpoint has to.
//!
//! # First fragments
//! [`FragmentTable`] has the first fragments of UE packets. Later fragments have no ports and are
//! matched by those of their first fragment (TS 29.244 clause 5.2.1: they match the PDR of their
//! packet). A fragment whose first one was not seen matches nothing, since passing it would
//! circumvent filters.

use fastlane::Packet;
use fastlane::wire::{Fragment, Ipv4, checksum, header, header_mut};

use super::deferred_queue::Fragmentation;
use super::forward::Forwarder;
use super::inner_packet;
use super::inner_packet::InnerPacket;
use super::ip_header;
use super::lane_tables::TurnContext;
use super::lookup::UePacket;
use super::nat::Translation;
use super::next_hop::Egress;
use super::outcome::{Outcome, forwarded};
use super::routes::Routes;
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;

/// Maximum length of a fragment.
const MAX_LENGTH: usize = 2048;
/// More-fragments flag and offset mask of IPv4.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

impl Fragmentation {
    /// Sends a packet in fragments.
    pub(crate) fn send<R: Routes>(
        &self,
        forwarder: &mut Forwarder<R>,
        ue_packet: &UePacket,
        packet: &mut Packet,
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
        if can.is_none() || each == 0 {
            return Outcome::Drop(DropReason::TooLong); // options are not copied here
        }
        if data.chunks(each).len() > context.turn.new_packets_left() {
            return Outcome::Drop(DropReason::NoFrame);
        }
        let translation = match self.translation(forwarder, ue_packet, packet, context) {
            Ok(translation) => translation,
            Err(reason) => return Outcome::Drop(reason),
        };
        if let Err(outcome) = forwarder.charge_later(ue_packet, self.due, packet, context.burst()) {
            return outcome;
        }
        if let Some(translation) = translation {
            translation.write(ue_packet.inner_mut(packet));
        }
        if self.mask != 0 {
            ip_header::mark(ue_packet.inner_mut(packet), self.marking, self.mask);
        }
        ue_packet.complete_checksum(packet); // the fragments are new packets
        let bytes = ue_packet.inner(packet.bytes());
        let data = bytes.get(front..inner.length as usize).unwrap_or_default();
        let Some(ip) = header::<Ipv4>(bytes, 0).copied() else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let is_tunnelled = matches!(self.out, Egress::Tunnel(..));
        let is_ip_hop = ue_packet.tunnel.is_some() != is_tunnelled;
        let hop = u8::from(is_ip_hop && !ue_packet.is_hairpin);
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
        Outcome::Drop(forwarded(self.direction))
    }

    /// Finds the translation of a packet that leaves for the data network.
    fn translation<R: Routes>(
        &self,
        forwarder: &Forwarder<R>,
        ue_packet: &UePacket,
        packet: &mut Packet,
        context: &TurnContext<'_>,
    ) -> Result<Option<Translation>, DropReason> {
        let Egress::NextHop(hop) = self.out else { return Ok(None) };
        let exit = forwarder.ports.exit(hop.port, None, |role| role == Role::N6);
        let instance = exit.ok_or(DropReason::NoRoute)?.instance;
        forwarder.translation(instance, ue_packet, self.due.session, packet, context.burst())
    }
}

/// Number of entries.
const ENTRIES: usize = 2048;
/// Lifetime of an entry in ns, as long as a receiver waits for the rest (60 s in RFC 8200 clause
/// 4.5, 30 s in Linux).
const LIFETIME: u64 = 30_000_000_000;

/// Fields of a first fragment.
#[derive(Clone, Copy, Debug)]
struct FirstFragment {
    source: u128,
    destination: u128,
    session: u32,
    identification: u32,
    protocol: u8,
    is_v6: bool,
    ports: [u16; 2],
    spi: Option<u32>,
    /// Expiry in ns of `CLOCK_MONOTONIC`; 0 means an empty entry.
    until: u64,
}

/// First fragments of a lane, direct mapped: a newer fragment replaces the entry.
#[derive(Clone, Debug)]
pub(crate) struct FragmentTable {
    entries: Vec<FirstFragment>,
}

impl FragmentTable {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        let empty = FirstFragment {
            source: 0,
            destination: 0,
            session: 0,
            identification: 0,
            protocol: 0,
            is_v6: false,
            ports: [0; 2],
            spi: None,
            until: 0,
        };
        Self { entries: vec![empty; ENTRIES] }
    }

    /// Stores the fields of a first fragment, or fills in those of a later one; false if they are
    /// unknown.
    #[cold]
    pub(crate) fn complete(&mut self, session: u32, inner: &mut InnerPacket, now: u64) -> bool {
        let index = index_of(session, inner);
        let Some(entry) = self.entries.get_mut(index) else { return false };
        if inner.fragment == Fragment::First {
            *entry = FirstFragment {
                source: inner.source,
                destination: inner.destination,
                session,
                identification: inner.identification,
                protocol: inner.protocol,
                is_v6: inner.is_v6,
                ports: inner.ports,
                spi: inner.spi,
                until: now + LIFETIME,
            };
            return true;
        }
        let is_it = entry.until > now
            && entry.session == session
            && entry.identification == inner.identification
            && entry.is_v6 == inner.is_v6
            // In IPv6 a later fragment may name another protocol; the first one's counts.
            && (entry.protocol == inner.protocol || inner.is_v6)
            && entry.source == inner.source
            && entry.destination == inner.destination;
        if is_it {
            (inner.ports, inner.spi, inner.protocol) = (entry.ports, entry.spi, entry.protocol);
            inner.is_complete = true;
        }
        is_it
    }
}

fn index_of(session: u32, inner: &InnerPacket) -> usize {
    let both = inner.source ^ inner.destination.rotate_left(64 + 16);
    let mixed = (u64::from(session) << 32 | u64::from(inner.identification))
        ^ (both as u64).rotate_left(17)
        ^ ((both >> 64) as u64).rotate_left(41);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::super::inner_packet;
    use super::*;

    fn fragment(identification: u8, flags_offset: u16, port: u8) -> InnerPacket {
        let mut packet = vec![0x45, 0, 0, 40, 0, identification, 0, 0, 9, 17, 0, 0];
        packet[6..8].copy_from_slice(&flags_offset.to_be_bytes());
        packet.extend([10, 0, 0, 5, 192, 0, 2, 1, 0, port, 0, 53]);
        packet.resize(40, 0);
        inner_packet::read(&packet).unwrap()
    }

    #[test]
    fn later_fragments_go_by_the_first() {
        let mut fragments = FragmentTable::new();
        let mut deferred = fragment(1, 3, 0xee);
        assert_eq!((deferred.fragment, deferred.ports), (Fragment::Later, [0, 0]));
        assert!(!fragments.complete(7, &mut deferred, 1));
        let mut first = fragment(1, 0x2000, 5);
        assert!(fragments.complete(7, &mut first, 1));
        assert!(fragments.complete(7, &mut deferred, 2));
        assert_eq!(deferred.ports, [5, 53]);
        // Another session, another packet, an expired entry.
        assert!(!fragments.complete(8, &mut fragment(1, 3, 0), 2));
        assert!(!fragments.complete(7, &mut fragment(2, 3, 0), 2));
        assert!(!fragments.complete(7, &mut fragment(1, 3, 0), 2 + LIFETIME));
    }
}
