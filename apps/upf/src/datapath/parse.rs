//! Receives packets: UE packets go into the batch, all others are finished here.

use fastlane::wire::{Ethernet, GtpMessageType, header};
use fastlane::{Packet, Turn, Verdict};

use super::Datapath;
use super::lane_tables::LaneTables;
use super::lookup::Batch;
use super::next_hop::Routes;
use super::outer_header::{self, FrameKind, GtpuPacket};
use super::port_map::PortRole;
use crate::rules::layout::drop_reason::DropReason;
use crate::session::InstanceId;

impl<R: Routes> Datapath<R> {
    /// Parses frames: UE packets go into the batch, all others are finished here.
    pub(super) fn read(
        &mut self,
        tables: &LaneTables,
        batch: &mut Batch,
        packets: &mut [Packet],
        turn: &mut Turn,
    ) {
        let Some(port) = packets.first().map(Packet::port) else { return };
        let Some(side) = self.ports.of(port) else {
            let octets = packets.iter().map(|packet| packet.len() as u64).sum();
            packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
            return tables.count(DropReason::NotOurs, packets.len() as u64, octets);
        };
        let now = turn.now();
        let port_mac = self.routes.ingress(turn, port).map(|entrance| entrance.mac);
        let port_mac = port_mac.filter(|_| !side.is_hairpin);
        let mut control = 0_u32; // one bit per packet; a batch has at most 32
        for (place, packet) in packets.iter_mut().enumerate() {
            let is_taken = match outer_header::parse_usual(packet.bytes(), side, port_mac) {
                Some(FrameKind::Data(tunnel)) => self.add_tunnelled(tables, batch, place, tunnel),
                Some(FrameKind::Ip { is_v6 }) => self.add_ip(batch, place, packet, side, is_v6),
                Some(FrameKind::Control(tunnel)) => {
                    // Replies are written after all packets are parsed; until then a safe label.
                    packet.set_verdict(Verdict::Drop);
                    match self.exceeds_echo_rate(&tunnel, now) {
                        true => tables.count(DropReason::EchoSuppressed, 1, packet.len() as u64),
                        false => control |= 1 << place,
                    }
                    true
                }
                _ => false,
            };
            if !is_taken && self.parse_slow(tables, batch, place, packet, port_mac) {
                control |= 1 << place;
            }
        }
        if control != 0 {
            self.handle_control(tables, packets, control, port_mac, turn);
        }
    }

    /// Parses a frame that is not in the usual form. Returns true if it is a GTP-U message without
    /// user data.
    #[inline(never)]
    fn parse_slow(
        &self,
        tables: &LaneTables,
        batch: &mut Batch,
        place: usize,
        packet: &mut Packet,
        port_mac: Option<[u8; 6]>,
    ) -> bool {
        let Some(side) = self.ports.of(packet.port()) else { return false };
        let (verdict, reason) = match outer_header::read(packet.bytes(), side, port_mac) {
            FrameKind::Data(tunnel) => {
                self.add_tunnelled(tables, batch, place, tunnel);
                return false;
            }
            FrameKind::Control(_) => {
                // Replies are written after all packets are parsed.
                packet.set_verdict(Verdict::Drop);
                return true;
            }
            FrameKind::Ip { is_v6 } => {
                if self.add_ip(batch, place, packet, side, is_v6) {
                    return false;
                }
                (Verdict::Kernel, DropReason::NotOurs)
            }
            FrameKind::Linux => (Verdict::Kernel, DropReason::NotOurs),
            FrameKind::Drop(reason) => (Verdict::Drop, reason),
        };
        packet.set_verdict(verdict);
        tables.count(reason, 1, packet.len() as u64);
        false
    }

    /// Adds a decapsulated packet to the batch.
    #[inline(always)]
    fn add_tunnelled(
        &self,
        tables: &LaneTables,
        batch: &mut Batch,
        place: usize,
        tunnel: GtpuPacket,
    ) -> bool {
        let interface = self.ports.interfaces.get(usize::from(tunnel.interface));
        let instance = interface.map_or(0, |interface| interface.instance);
        batch.push_tunnel(place, tunnel, instance, self.teid_layout, tables);
        true
    }

    /// Adds an IP packet without a tunnel to the batch; false if it has no destination.
    #[inline(always)]
    fn add_ip(
        &self,
        batch: &mut Batch,
        place: usize,
        packet: &Packet,
        side: &PortRole,
        is_v6: bool,
    ) -> bool {
        let instance = self.instance_of(packet, side.is_hairpin, side.plain());
        batch.push_plain(place, packet, is_v6, instance, side.is_hairpin)
    }

    /// Returns true for echo requests beyond the rate limit: a flood of them must cost little.
    #[inline]
    fn exceeds_echo_rate(&self, tunnel: &GtpuPacket, now: u64) -> bool {
        tunnel.message_type == GtpMessageType::ECHO_REQUEST && !self.echoes.has(now)
    }

    /// Handles GTP-U messages without user data.
    #[cold]
    fn handle_control(
        &mut self,
        tables: &LaneTables,
        packets: &mut [Packet],
        mut places: u32,
        port_mac: Option<[u8; 6]>,
        turn: &mut Turn,
    ) {
        while places != 0 {
            let place = places.trailing_zeros();
            places &= places - 1;
            let Some(packet) = packets.get_mut(place as usize) else { return };
            let Some(side) = self.ports.of(packet.port()) else { return };
            let reason = match outer_header::read(packet.bytes(), side, port_mac) {
                FrameKind::Control(tunnel) => {
                    self.control(tables, &tunnel, packet, turn);
                    continue;
                }
                FrameKind::Drop(reason) => reason,
                // The full parser disagrees with the header.
                FrameKind::Data(_) | FrameKind::Ip { .. } | FrameKind::Linux => {
                    DropReason::Malformed
                }
            };
            packet.set_verdict(Verdict::Drop);
            tables.count(reason, 1, packet.len() as u64);
        }
    }

    /// Returns the network instance of an IP packet without a tunnel.
    #[inline]
    pub(super) fn instance_of(
        &self,
        packet: &Packet,
        is_hairpin: bool,
        plain: InstanceId,
    ) -> InstanceId {
        if !is_hairpin {
            return plain;
        }
        let ethernet = header::<Ethernet>(packet.bytes(), 0);
        let [.., high, low] = ethernet.map_or([0; 6], |ethernet| ethernet.destination.0);
        InstanceId::from_be_bytes([high, low])
    }
}
