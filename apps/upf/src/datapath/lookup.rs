//! A batch of packets that are looked up together, so that their cache misses overlap.

use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{FallbackReason, RouteLookup};
use fastlane::table::EntryId;
use fastlane::wire::{Ethernet, PduSession};
use fastlane::{Packet, Turn};

use super::classify::{Blocks, Charge, Classifier, PacketFields};
use super::inner_packet::InnerPacket;
use super::lane_tables::{DestinationAddress, LaneTables};
use super::outer_header::GtpuPacket;
use super::port_map::PortMap;
use super::routes::BATCH;
use crate::config::Role;
use crate::rules::layout::session_rules::{BlockRef, Direction, Rules};
use crate::rules::layout::{TeidLayout, UeKey};
use crate::session::{Destination, InstanceId, SessionIndex};

/// A UE packet as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UePacket {
    /// Index in the batch.
    pub(crate) number: u8,
    /// Index of the packet in the burst.
    pub(crate) position: u8,
    /// Network instance of the ingress.
    pub(crate) instance: InstanceId,
    /// Session, as far as it is known. The session that a TEID names may turn out to be another
    /// one.
    pub(crate) session: Option<SessionIndex>,
    /// Offset and end of the inner packet in the frame.
    pub(crate) at: u16,
    pub(crate) end: u32,
    /// GTP-U packet that carried it.
    pub(crate) tunnel: Option<GtpuPacket>,
    /// True if another lane passed it on and has decremented its TTL.
    pub(crate) is_hairpin: bool,
}

impl UePacket {
    /// Returns the inner packet in its frame.
    #[inline]
    pub(crate) fn inner<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(usize::from(self.at)..self.end as usize).unwrap_or_default()
    }

    /// Returns the inner packet for modification.
    #[inline]
    pub(crate) fn inner_mut<'a>(&self, packet: &'a mut Packet) -> &'a mut [u8] {
        let range = usize::from(self.at)..self.end as usize;
        packet.bytes_mut().get_mut(range).unwrap_or_default()
    }

    /// Completes the checksum of the inner packet, if its sender left that to the device.
    pub(crate) fn complete_checksum(&self, packet: &mut Packet) {
        if packet.partial_checksum().is_some_and(|partial| partial.start >= self.at) {
            let _ = packet.complete_checksum(); // a checksum that cannot be completed stays wrong
        }
    }

    /// Returns the direction in which most packets of this ingress go.
    #[inline]
    pub(crate) fn usual_direction(&self) -> Direction {
        if self.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink }
    }

    /// Returns the fields that PDRs match; `None` if the PDU session container of the packet is
    /// that of a downlink packet on N3, see [`returning_fields`](Self::returning_fields).
    #[inline(always)]
    pub(crate) fn fields(&self, inner: &InnerPacket, ports: &PortMap) -> Option<PacketFields> {
        let teid = self.tunnel.map(|tunnel| tunnel.teid);
        Some(inner.fields(teid, self.instance, self.qfi(ports)?))
    }

    /// Returns true if the tunnel of a packet leads back to the access network: a base station
    /// forwards what it has not delivered to the user, as downlink packets (TS 23.502 clause
    /// 4.9.1.3).
    #[cold]
    pub(crate) fn returns<'t, B: Blocks<'t>>(&self, classifier: &Classifier<'t, '_, B>) -> bool {
        let path = self.tunnel.and_then(|tunnel| classifier.tunnel_path(tunnel.teid));
        path.is_some_and(|path| path.forwarding.destination() == Destination::Access)
    }

    /// Returns the fields of a packet that returns, whatever its PDU session container.
    #[cold]
    pub(crate) fn returning_fields(&self, inner: &InnerPacket) -> PacketFields {
        let tunnel = self.tunnel.as_ref();
        let qfi = tunnel.and_then(|tunnel| tunnel.pdu_session).map(|container| container.qfi);
        inner.fields(tunnel.map(|tunnel| tunnel.teid), self.instance, qfi)
    }

    /// Returns the QoS flow of the packet's PDU session container; `None` if the container is of
    /// the other direction.
    #[inline]
    fn qfi(&self, ports: &PortMap) -> Option<Option<u8>> {
        let Some(tunnel) = &self.tunnel else { return Some(None) };
        let Some(container) = tunnel.pdu_session else { return Some(None) };
        let interface = ports.interfaces.get(usize::from(tunnel.interface));
        let is_n3 = interface.is_some_and(|interface| interface.role == Role::N3);
        (!is_n3 || container.pdu_type == PduSession::UPLINK).then_some(Some(container.qfi))
    }
}

/// A classified packet with its session and rules.
#[derive(Clone, Copy)]
pub(crate) struct ClassifiedPacket<'a> {
    pub(crate) ue_packet: &'a UePacket,
    pub(crate) session: SessionIndex,
    pub(crate) rules: &'a Rules,
    pub(crate) direction: Direction,
    /// Charge that is due when the packet leaves.
    pub(crate) charge: Charge,
}

/// A charge with the session that it is due for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionCharge {
    pub(crate) session: SessionIndex,
    pub(crate) charge: Charge,
}

/// Ingress of a packet without a tunnel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ingress {
    pub(crate) instance: InstanceId,
    /// True if another lane passed the packet on and has decremented its TTL.
    pub(crate) is_hairpin: bool,
}

const EMPTY: UePacket = UePacket {
    number: 0,
    position: 0,
    instance: 0,
    session: None,
    at: 0,
    end: 0,
    tunnel: None,
    is_hairpin: false,
};

/// Packets of a batch.
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) ue_packets: [UePacket; BATCH],
    /// Packets without a tunnel: number, indices in the batch, lookup keys.
    ip_count: usize,
    ip_packets: [u8; BATCH],
    keys: [UeKey; BATCH],
    /// Packets that leave without a tunnel.
    pub(crate) routed: RouteBatches,
}

/// Packets that leave without a tunnel, by address family.
pub(crate) struct RouteBatches {
    pub(crate) four: RouteBatch<Ipv4Addr>,
    pub(crate) six: RouteBatch<Ipv6Addr>,
}

impl RouteBatches {
    /// Adds a packet by its destination.
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: RoutedPacket, to: DestinationAddress, flow: u32) {
        match to {
            DestinationAddress::V4(to) => self.four.push(packet, to, flow),
            DestinationAddress::V6(to) => self.six.push(packet, to, flow),
        }
    }
}

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            ue_packets: [EMPTY; BATCH],
            ip_count: 0,
            ip_packets: [0; BATCH],
            keys: [UeKey::v4(0, Ipv4Addr::UNSPECIFIED); BATCH],
            routed: RouteBatches {
                four: RouteBatch::new(Ipv4Addr::UNSPECIFIED),
                six: RouteBatch::new(Ipv6Addr::UNSPECIFIED),
            },
        }
    }

    /// Empties the batch.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.count, self.ip_count) = (0, 0);
        (self.routed.four.count, self.routed.six.count) = (0, 0);
    }

    /// Adds a packet from a tunnel and prefetches the index of its rules.
    #[inline(always)]
    pub(crate) fn push_tunnel(
        &mut self,
        position: usize,
        tunnel: GtpuPacket,
        instance: InstanceId,
        teid_layout: TeidLayout,
        tables: &LaneTables,
    ) {
        let session = teid_layout.session(tunnel.teid);
        tables.rules.prefetch_index(session.0 as usize);
        self.push(UePacket {
            number: self.count as u8,
            position: position as u8,
            instance,
            session: Some(session),
            at: tunnel.payload,
            end: tunnel.end,
            tunnel: Some(tunnel),
            is_hairpin: false,
        });
    }

    /// Adds a packet without a tunnel; false if it has no destination.
    #[inline]
    pub(crate) fn push_ip(
        &mut self,
        position: usize,
        frame: &[u8],
        is_v6: bool,
        instance: InstanceId,
        is_hairpin: bool,
    ) -> bool {
        let Some(to) = DestinationAddress::of(frame, is_v6) else { return false };
        if let (Some(key), Some(ue_packet)) =
            (self.keys.get_mut(self.ip_count), self.ip_packets.get_mut(self.ip_count))
        {
            (*key, *ue_packet) = (to.key(instance), self.count as u8);
            self.ip_count += 1;
        }
        self.push(UePacket {
            number: self.count as u8,
            position: position as u8,
            instance,
            session: None,
            at: Ethernet::LENGTH as u16,
            end: frame.len() as u32,
            tunnel: None,
            is_hairpin,
        });
        true
    }

    /// Adds a packet without a tunnel whose session is known, since NAT has translated it, and
    /// prefetches the index of its rules.
    #[inline]
    pub(crate) fn push_translated(
        &mut self,
        position: usize,
        length: usize,
        ingress: Ingress,
        session: SessionIndex,
        tables: &LaneTables,
    ) {
        tables.rules.prefetch_index(session.0 as usize);
        self.push(UePacket {
            number: self.count as u8,
            position: position as u8,
            instance: ingress.instance,
            session: Some(session),
            at: Ethernet::LENGTH as u16,
            end: length as u32,
            tunnel: None,
            is_hairpin: ingress.is_hairpin,
        });
    }

    #[inline(always)]
    fn push(&mut self, ue_packet: UePacket) {
        if let Some(slot) = self.ue_packets.get_mut(self.count) {
            *slot = ue_packet;
            self.count += 1;
        }
    }

    /// Finds the sessions of packets without a tunnel, and prefetches rules and state of all
    /// packets. Returns the rules found, by packet.
    #[inline]
    pub(crate) fn find<'t>(&mut self, tables: &'t LaneTables, turn: &'t Turn) -> PacketRules<'t> {
        if self.ip_count > 0 {
            let mut found = [None; BATCH];
            let (keys, found) = (&self.keys[..self.ip_count], &mut found[..self.ip_count]);
            tables.users.get_many(turn, keys, found);
            for (found, ue_packet) in found.iter().zip(&self.ip_packets) {
                let session = found.map(|found| found.value.session());
                if let Some(session) = session {
                    tables.rules.prefetch_index(session.0 as usize);
                }
                if let Some(ue_packet) = self.ue_packets.get_mut(usize::from(*ue_packet)) {
                    ue_packet.session = session;
                }
            }
        }
        let mut rules = [None; BATCH];
        for (ue_packet, rules) in self.ue_packets.iter().zip(&mut rules).take(self.count) {
            let Some(session) = ue_packet.session else { continue };
            // Packets from a tunnel are mostly uplink packets, which one cache line decides.
            let offset = if ue_packet.tunnel.is_some() { UPLINK } else { DOWNLINK };
            *rules = tables.rules.fetch(turn, session.0 as usize, offset);
            tables.state.prefetch(EntryId(session.0));
        }
        let ue_packets = &self.ue_packets[..self.count];
        if ue_packets.iter().zip(&rules).fold(false, |any, (ue_packet, rules)| {
            let direction = ue_packet.usual_direction();
            any | rules.is_some_and(|rules| rules.has_blocks_for(direction))
        }) {
            prefetch_blocks(tables, turn, ue_packets, &rules[..self.count]);
        }
        rules
    }
}

/// Number of further counter slots of a session that are prefetched.
const SLOTS: usize = 4;

/// Prefetches the first rule blocks of sessions and the counter slots that they refer to. Otherwise
/// each of their cache lines would be a miss.
#[inline(never)]
fn prefetch_blocks(
    tables: &LaneTables,
    turn: &Turn,
    ue_packets: &[UePacket],
    rules: &[Option<&Rules>],
) {
    let mut blocks = [BlockRef { index: 0, octets: 0 }; BATCH];
    let mut count = 0;
    for (ue_packet, rules) in ue_packets.iter().zip(rules) {
        let found = rules.and_then(|rules| rules.first_block(ue_packet.usual_direction()));
        if let (Some(found), Some(block)) = (found, blocks.get_mut(count)) {
            tables.blocks.prefetch_index(found.index as usize);
            (*block, count) = (found, count + 1);
        }
    }
    let blocks = &blocks[..count];
    for block in blocks {
        tables.blocks.prefetch_first(block.index as usize, usize::from(block.octets));
    }
    for block in blocks {
        let Some(block) = tables.blocks.get(turn, block.index as usize) else { continue };
        for charge in block.charges().iter().take(SLOTS) {
            tables.state.prefetch(EntryId(charge.line));
        }
    }
}

/// Rules found for the packets of a batch.
pub(crate) type PacketRules<'t> = [Option<&'t Rules>; BATCH];

/// Offsets of the two directions' cache lines in [`Rules`].
const UPLINK: usize = offset_of!(Rules, uplink);
const DOWNLINK: usize = offset_of!(Rules, downlink);

/// A packet that leaves without a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutedPacket {
    /// Index of the packet in the batch.
    pub(crate) ue_packet: u8,
    /// Session of the packet.
    pub(crate) session: SessionIndex,
    /// Charge that is due when it leaves.
    pub(crate) charge: Charge,
    /// Network instance that it leaves in, if one was named.
    pub(crate) instance: Option<InstanceId>,
    /// Type of service to set: value and mask.
    pub(crate) marking: u8,
    pub(crate) mask: u8,
    /// Length of the IP packet in octets.
    pub(crate) length: u32,
}

impl RoutedPacket {
    /// Returns the charge that is due, with its session.
    pub(crate) fn due(&self) -> SessionCharge {
        SessionCharge { session: self.session, charge: self.charge }
    }
}

/// Packets of an address family that leave without a tunnel and are routed together.
pub(crate) struct RouteBatch<A> {
    pub(crate) count: usize,
    pub(crate) packets: [RoutedPacket; BATCH],
    pub(crate) to: [A; BATCH],
    pub(crate) flows: [u32; BATCH],
    pub(crate) answers: [RouteLookup; BATCH],
}

impl<A: Copy> RouteBatch<A> {
    fn new(unspecified: A) -> Self {
        let empty = RoutedPacket {
            ue_packet: 0,
            session: SessionIndex(0),
            charge: Charge::default(),
            instance: None,
            marking: 0,
            mask: 0,
            length: 0,
        };
        Self {
            count: 0,
            packets: [empty; BATCH],
            to: [unspecified; BATCH],
            flows: [0; BATCH],
            answers: [RouteLookup::Fallback(FallbackReason::Incomplete); BATCH],
        }
    }

    /// Adds a packet.
    #[inline]
    pub(crate) fn push(&mut self, packet: RoutedPacket, to: A, flow: u32) {
        let at = self.count;
        if at < BATCH {
            (self.packets[at], self.to[at], self.flows[at]) = (packet, to, flow);
            self.count = at + 1;
        }
    }
}
