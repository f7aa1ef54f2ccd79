//! A batch of packets that are looked up together, so that their cache misses overlap.

use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{FallbackReason, RouteLookup};
use fastlane::table::EntryId;
use fastlane::wire::Ethernet;
use fastlane::{Packet, Turn};

use super::classify::Charge;
use super::lane_tables::{DestinationAddress, LaneTables};
use super::next_hop::BATCH;
use super::outer_header::GtpuPacket;
use crate::rules::layout::key::UeKey;
use crate::rules::layout::session_rules::{Direction, Rules};
use crate::rules::layout::teid_layout::TeidLayout;
use crate::session::{InstanceId, SessionIndex};

/// A UE packet as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UePacket {
    /// Index in the burst.
    pub(crate) place: u8,
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
}

const EMPTY: UePacket = UePacket {
    place: 0,
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
    plain: usize,
    plain_tasks: [u8; BATCH],
    keys: [UeKey; BATCH],
    /// Packets that leave without a tunnel, by address family.
    pub(crate) four: RouteBatch<Ipv4Addr>,
    pub(crate) six: RouteBatch<Ipv6Addr>,
}

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            ue_packets: [EMPTY; BATCH],
            plain: 0,
            plain_tasks: [0; BATCH],
            keys: [UeKey::v4(0, Ipv4Addr::UNSPECIFIED); BATCH],
            four: RouteBatch::new(Ipv4Addr::UNSPECIFIED),
            six: RouteBatch::new(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Empties the batch.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.count, self.plain, self.four.count, self.six.count) = (0, 0, 0, 0);
    }

    /// Adds a packet from a tunnel and prefetches the index of its rules.
    #[inline(always)]
    pub(crate) fn push_tunnel(
        &mut self,
        place: usize,
        tunnel: GtpuPacket,
        instance: InstanceId,
        teid_layout: TeidLayout,
        tables: &LaneTables,
    ) {
        let session = teid_layout.session(tunnel.teid);
        tables.rules.prefetch_index(session.0 as usize);
        self.push(UePacket {
            place: place as u8,
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
    pub(crate) fn push_plain(
        &mut self,
        place: usize,
        packet: &Packet,
        is_v6: bool,
        instance: InstanceId,
        is_hairpin: bool,
    ) -> bool {
        let frame = packet.bytes();
        let Some(to) = DestinationAddress::of(frame, is_v6) else { return false };
        if let (Some(key), Some(ue_packet)) =
            (self.keys.get_mut(self.plain), self.plain_tasks.get_mut(self.plain))
        {
            (*key, *ue_packet) = (to.key(instance), self.count as u8);
            self.plain += 1;
        }
        self.push(UePacket {
            place: place as u8,
            instance,
            session: None,
            at: Ethernet::LENGTH as u16,
            end: frame.len() as u32,
            tunnel: None,
            is_hairpin,
        });
        true
    }

    #[inline(always)]
    fn push(&mut self, ue_packet: UePacket) {
        if let Some(place) = self.ue_packets.get_mut(self.count) {
            *place = ue_packet;
            self.count += 1;
        }
    }

    /// Finds the sessions of packets without a tunnel, and prefetches rules and state of all
    /// packets. Returns the rules found, by packet.
    #[inline]
    pub(crate) fn find<'t>(&mut self, tables: &'t LaneTables, turn: &'t Turn) -> PacketRules<'t> {
        if self.plain > 0 {
            let mut found = [None; BATCH];
            let (keys, found) = (&self.keys[..self.plain], &mut found[..self.plain]);
            tables.users.get_many(turn, keys, found);
            for (found, ue_packet) in found.iter().zip(&self.plain_tasks) {
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
            let line = if ue_packet.tunnel.is_some() { UP } else { DOWN };
            *rules = tables.rules.fetch(turn, session.0 as usize, line);
            tables.state.prefetch(EntryId(session.0));
        }
        let ue_packets = self.ue_packets.iter().zip(&rules).take(self.count);
        if ue_packets.fold(false, |any, (ue_packet, rules)| {
            let direction =
                if ue_packet.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink };
            any | rules.is_some_and(|rules| rules.has_blocks_for(direction))
        }) {
            ask_for_blocks(tables, &rules[..self.count]);
        }
        rules
    }
}

/// Prefetches the first rule blocks of sessions. Otherwise each of their cache lines would be a
/// miss.
#[inline(never)]
fn ask_for_blocks(tables: &LaneTables, rules: &[Option<&Rules>]) {
    let places = || rules.iter().flatten().filter_map(|rules| rules.cold.block.checked_sub(1));
    places().for_each(|place| tables.blocks.prefetch_index(place as usize));
    places().for_each(|place| tables.blocks.prefetch_whole(place as usize));
}

/// Rules found for the packets of a batch.
pub(crate) type PacketRules<'t> = [Option<&'t Rules>; BATCH];

/// Offsets of the two directions' cache lines in [`Rules`].
const UP: usize = offset_of!(Rules, uplink);
const DOWN: usize = offset_of!(Rules, downlink);

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

/// Packets of an address family that leave without a tunnel and are routed together.
pub(crate) struct RouteBatch<A> {
    pub(crate) count: usize,
    pub(crate) packets: [RoutedPacket; BATCH],
    pub(crate) to: [A; BATCH],
    pub(crate) flows: [u32; BATCH],
    pub(crate) answers: [RouteLookup; BATCH],
}

impl<A: Copy> RouteBatch<A> {
    fn new(nowhere: A) -> Self {
        let nothing = RoutedPacket {
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
            packets: [nothing; BATCH],
            to: [nowhere; BATCH],
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
