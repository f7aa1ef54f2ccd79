//! Receives packets: UE packets go into the batch, all others are finished here.

use fastlane::{Packet, Turn, Verdict};

use super::Datapath;
use super::lane_tables::{LaneTables, TurnContext};
use super::lookup::Batch;
use super::outer_header::{self, FrameKind, GtpuPacket};
use super::port_map::PortRole;
use super::routes::Routes;
use crate::rules::layout::drop_reason::DropReason;

impl<R: Routes> Datapath<R> {
    /// Parses frames: UE packets go into the batch, all others are finished here.
    pub(super) fn parse(
        &mut self,
        tables: &LaneTables,
        batch: &mut Batch,
        packets: &mut [Packet],
        turn: &mut Turn,
    ) {
        let Some(port) = packets.first().map(Packet::port) else { return };
        let Some(role) = self.forwarder.ports.of(port) else {
            let octets = packets.iter().map(|packet| packet.len() as u64).sum();
            packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
            return tables.count(DropReason::NotOurs, packets.len() as u64, octets);
        };
        let now = turn.now();
        let port_mac = self.forwarder.routes.ingress(turn, port).map(|entrance| entrance.mac);
        let port_mac = port_mac.filter(|_| !role.is_hairpin);
        let mut control = 0_u32; // one bit per packet; a batch has at most 32
        for (position, packet) in packets.iter_mut().enumerate() {
            let is_taken = match outer_header::parse_usual(packet.bytes(), role, port_mac) {
                Some(FrameKind::Data(tunnel)) => {
                    self.add_tunnelled(tables, batch, position, tunnel)
                }
                Some(FrameKind::Ip { is_v6 }) => self.add_ip(batch, position, packet, role, is_v6),
                Some(FrameKind::Control(tunnel)) => {
                    // Replies are written after all packets are parsed; until then a safe label.
                    packet.set_verdict(Verdict::Drop);
                    match self.gtpu.exceeds_echo_rate(&tunnel, now) {
                        true => tables.count(DropReason::EchoSuppressed, 1, packet.len() as u64),
                        false => control |= 1 << position,
                    }
                    true
                }
                _ => false,
            };
            if !is_taken && self.parse_slow(tables, batch, position, packet, port_mac) {
                control |= 1 << position;
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
        position: usize,
        packet: &mut Packet,
        port_mac: Option<[u8; 6]>,
    ) -> bool {
        let Some(role) = self.forwarder.ports.of(packet.port()) else { return false };
        let (verdict, reason) = match outer_header::read(packet.bytes(), role, port_mac) {
            FrameKind::Data(tunnel) => {
                self.add_tunnelled(tables, batch, position, tunnel);
                return false;
            }
            FrameKind::Control(_) => {
                // Replies are written after all packets are parsed.
                packet.set_verdict(Verdict::Drop);
                return true;
            }
            FrameKind::Ip { is_v6 } => {
                if self.add_ip(batch, position, packet, role, is_v6) {
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
        position: usize,
        tunnel: GtpuPacket,
    ) -> bool {
        let interface = self.forwarder.ports.interfaces.get(usize::from(tunnel.interface));
        let instance = interface.map_or(0, |interface| interface.instance);
        batch.push_tunnel(position, tunnel, instance, self.teid_layout, tables);
        true
    }

    /// Adds an IP packet without a tunnel to the batch; false if it has no destination.
    #[inline(always)]
    fn add_ip(
        &self,
        batch: &mut Batch,
        position: usize,
        packet: &Packet,
        role: &PortRole,
        is_v6: bool,
    ) -> bool {
        let frame = packet.bytes();
        batch.push_ip(position, frame, is_v6, role.instance_of(frame), role.is_hairpin)
    }

    /// Handles GTP-U messages without user data.
    #[cold]
    fn handle_control(
        &mut self,
        tables: &LaneTables,
        packets: &mut [Packet],
        mut positions: u32,
        port_mac: Option<[u8; 6]>,
        turn: &mut Turn,
    ) {
        while positions != 0 {
            let position = positions.trailing_zeros();
            positions &= positions - 1;
            let Some(packet) = packets.get_mut(position as usize) else { return };
            let Some(role) = self.forwarder.ports.of(packet.port()) else { return };
            let reason = match outer_header::read(packet.bytes(), role, port_mac) {
                FrameKind::Control(tunnel) => {
                    let context = &mut TurnContext { tables, turn };
                    let Self { forwarder, slow_path, .. } = self;
                    self.gtpu.handle(forwarder, slow_path, &tunnel, packet, context);
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
}
